package remote

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestJudge_LossAndExit has a rank of a job that goes on fail when a host is lost and the others have been asked, but
// have not answered: that it goes on the rank's host has said.
func TestJudge_LossAndExit(t *testing.T) {
	var stderr bytes.Buffer
	j := &job{cfg: Config{Ranks: 3, Stderr: &stderr}, begun: time.Now()}
	for i, name := range []string{"a", "b", "c"} {
		h := &host{Host: Host{Name: name}, first: i, count: 1, link: newLink(closer{io.Discard})}
		defer h.link.close()
		h.shell = &shell{cmd: exec.Command("true"), ended: make(chan struct{})}
		if err := h.shell.cmd.Run(); err != nil {
			t.Fatal(err)
		}
		close(h.shell.ended)
		j.hosts = append(j.hosts, h)
	}
	s := &judge{job: j, running: 3, there: map[int]bool{0: true, 1: true, 2: true}, late: map[int]report{}}
	s.print = newPrinter(func(err error) { t.Error(err) })
	s.lose(j.hosts[0], io.EOF)
	if s.answers != 2 || s.ending {
		t.Fatalf("%d answers are waited for, want 2", s.answers)
	}
	s.exited(j.hosts[1], rankExit{Rank: 1, Status: 9, How: "exited with status 9", After: "1 s", GoesOn: true})
	for _, h := range j.hosts[1:] { // to the question that is no more
		s.heard(event{h: h, k: kindAnswer, b: []byte{1}})
	}
	s.exited(j.hosts[2], rankExit{Rank: 2, GoesOn: true})
	s.tell(1)
	s.print.close()
	<-s.print.done
	if s.ending || s.decided || s.status != 0 || s.running != 0 {
		t.Errorf("ended with status %d, want the job to go on", s.status)
	}
	if said := stderr.String(); strings.Count(said, "the job goes on with") != 2 || strings.Index(said, "host a was lost") > strings.Index(said, "rank 1 on b") {
		t.Errorf("said %q", said)
	}
}
