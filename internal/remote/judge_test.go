//go:build unix

package remote

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/generation"
	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
)

// add adds a host whose agent has been lost, and whose frames go to a buffer.
func (j *launcher) add(t *testing.T, h *host, sent *bytes.Buffer) {
	t.Helper()
	h.link = newLink(closer{sent})
	h.shell = &shell{cmd: exec.Command("true"), ended: make(chan struct{})}
	if err := h.shell.cmd.Run(); err != nil {
		t.Fatal(err)
	}
	close(h.shell.ended)
	j.hosts = append(j.hosts, h)
}

// form has the first processes form the first world.
func (s *judge) form(ranks int) {
	for id := range ranks {
		s.elastic.Handle(id, generation.Request{Ask: &generation.Ask{}})
	}
	for id := range ranks {
		s.elastic.Handle(id, generation.Request{Joined: true})
	}
}

// TestRankFailureWhileLossIsUndecided has a rank of a job that goes on fail when a host is lost and the others have been asked, but
// have not answered: that it goes on the rank's host has said.
func TestRankFailureWhileLossIsUndecided(t *testing.T) {
	var stderr bytes.Buffer
	j := &launcher{cfg: Config{Programs: spawn.Programs{{Ranks: 3}}, Stderr: &stderr}, begun: time.Now()}
	var sent [3]bytes.Buffer
	for i, name := range []string{"a", "b", "c"} {
		j.add(t, &host{Host: Host{Name: name}, first: i, count: 1}, &sent[i])
	}
	s := j.newJudge()
	s.lose(j.hosts[0], io.EOF)
	if s.m.Phase == job.Ends || s.m.Resilient {
		t.Fatal("decided without the other hosts")
	}
	s.exited(j.hosts[1], job.Exit{Rank: 1, ID: 1, Status: 9, How: "exited with status 9", After: "1 s", GoesOn: true})
	for _, h := range j.hosts[1:] { // to the question that is no more
		s.handle(event{h: h, message: message{Kind: kindAnswer, Yes: true}})
	}
	s.exited(j.hosts[2], job.Exit{Rank: 2, ID: 2, GoesOn: true})
	s.handle(event{h: j.hosts[1], message: message{Kind: kindDrained, ID: 1}})
	<-s.log.Close()
	s.print.close()
	<-s.print.done
	for i, h := range j.hosts {
		h.link.close()
		<-h.link.done
		asked := 0
		for from := gob.NewDecoder(&sent[i]); ; {
			var m message
			if from.Decode(&m) != nil {
				break
			}
			if m.Kind == kindAsk {
				asked++
			}
		}
		if (asked == 1) != (i > 0) {
			t.Errorf("host %s was asked %d times", h.Name, asked)
		}
	}
	if s.m.Phase == job.Ends || s.m.Decided || s.m.Status != 0 || s.m.Running != 0 {
		t.Errorf("ended with status %d, want the job to go on", s.m.Status)
	}
	if said := stderr.String(); strings.Count(said, "the job goes on with") != 2 || strings.Index(said, "host a was lost") > strings.Index(said, "rank 1 on b") {
		t.Errorf("said %q", said)
	}
}

// TestRequestEndsWaitForOutputOnly has the user ask for the end when all ranks have ended. If processes run that ranks have left,
// they get the signal, and the job has succeeded; the launcher stops waiting if only their output is left.
func TestRequestEndsWaitForOutputOnly(t *testing.T) {
	for _, c := range []struct {
		drains bool
		status int
	}{{false, 0}, {true, 130}} {
		j := &launcher{cfg: Config{Programs: spawn.Programs{{Ranks: 2}}, Stderr: io.Discard}, begun: time.Now()}
		for i, name := range []string{"a", "b"} {
			j.add(t, &host{Host: Host{Name: name}, first: i, count: 1}, new(bytes.Buffer))
		}
		s := j.newJudge()
		for i, h := range j.hosts {
			s.exited(h, job.Exit{Rank: i, ID: i})
		}
		s.handle(event{h: j.hosts[0], message: message{Kind: kindEnded}})
		if c.drains {
			s.handle(event{h: j.hosts[1], message: message{Kind: kindDrains}})
		}
		s.pass(syscall.SIGINT)
		if s.m.Status != c.status || s.outputAbandoned != c.drains {
			t.Errorf("no process is left: %v: status %d, stops waiting: %v; want %d", c.drains, s.m.Status, s.outputAbandoned, c.status)
		}
		for i := range j.hosts {
			close(s.drained[i])
		}
		<-s.log.Close()
		s.print.close()
		<-s.print.done
	}
}

// TestRequestToContinueOutlivesItsHost has the only host be lost on which a rank has requested that the job continues.
func TestRequestToContinueOutlivesItsHost(t *testing.T) {
	j := &launcher{cfg: Config{Programs: spawn.Programs{{Ranks: 2}}, Stderr: io.Discard}, begun: time.Now()}
	for i, name := range []string{"a", "b"} {
		j.add(t, &host{Host: Host{Name: name}, first: i, count: 1}, new(bytes.Buffer))
	}
	s := j.newJudge()
	s.handle(event{h: j.hosts[1], message: message{Kind: kindGoesOn}})
	s.lose(j.hosts[1], io.EOF)
	s.exited(j.hosts[0], job.Exit{Rank: 0, ID: 0})
	s.m.Stop()
	if s.m.Status != 0 {
		t.Errorf("status %d, want 0", s.m.Status)
	}
	close(s.drained[0])
	<-s.log.Close()
	s.print.close()
	<-s.print.done
}

// TestRankWithoutCloseFailsUnlessJobIsAskedToEnd has a rank of a host exit with status 0 without Close. Its agent may not know yet
// that the launcher has been asked to end the job.
func TestRankWithoutCloseFailsUnlessJobIsAskedToEnd(t *testing.T) {
	for _, c := range []struct {
		asked  bool
		status int
	}{{false, 1}, {true, 0}} {
		j := &launcher{cfg: Config{Programs: spawn.Programs{{Ranks: 2}}, Stderr: io.Discard}, begun: time.Now()}
		j.add(t, &host{Host: Host{Name: "a"}, count: 2}, new(bytes.Buffer))
		s := j.newJudge()
		if c.asked {
			s.m.Signal(syscall.SIGTERM)
		}
		s.exited(j.hosts[0], job.Exit{Rank: 0, ID: 0, How: "exited with status 0", After: "1 s", Open: true})
		s.m.Stop()
		if s.m.Status != c.status {
			t.Errorf("asked to end: %v: status %d, want %d", c.asked, s.m.Status, c.status)
		}
		close(s.drained[0])
		<-s.log.Close()
		s.print.close()
		<-s.print.done
	}
}

// TestFlightFilesAreSentOfFailureWhileAnswersAreAwaited has all ranks of a job end because one has failed, before the hosts have
// answered whether the job continues.
func TestFlightFilesAreSentOfFailureWhileAnswersAreAwaited(t *testing.T) {
	j := &launcher{cfg: Config{Programs: spawn.Programs{{Ranks: 2}}, Stderr: io.Discard, Flight: t.TempDir()}, begun: time.Now()}
	var sent [2]bytes.Buffer
	for i, name := range []string{"a", "b"} {
		j.add(t, &host{Host: Host{Name: name}, first: i, count: 1}, &sent[i])
	}
	s := j.newJudge()
	s.exited(j.hosts[0], job.Exit{Rank: 0, ID: 0, Status: 3, How: "exited with status 3", After: "1 s"})
	s.exited(j.hosts[1], job.Exit{Rank: 1, ID: 1, Status: 1, How: "exited with status 1", After: "1 s", Follows: true})
	for _, h := range j.hosts {
		h.state = hostDone
	}
	s.goodbye()
	for i, h := range j.hosts {
		h.link.close()
		<-h.link.done
		var last message
		for from, err := gob.NewDecoder(&sent[i]), error(nil); err == nil; {
			var m message
			if err = from.Decode(&m); err == nil {
				last = m
			}
		}
		if last.Kind != kindBye || !last.Yes {
			t.Errorf("the last message to host %s is %q, %v; want a goodbye that asks for the files", h.Name, byte(last.Kind), last.Yes)
		}
		close(s.drained[i])
	}
	if s.m.Status != 3 {
		t.Errorf("status %d, want 3", s.m.Status)
	}
	<-s.log.Close()
	s.print.close()
	<-s.print.done
}

// TestFlightFileIsReplacedAtomically has a file come for which there is one already. That one is never half of the new one: who has it
// open still sees the old one, and nothing else is left in the folder.
func TestFlightFileIsReplacedAtomically(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, flight.FileName(1))
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &judge{launcher: &launcher{cfg: Config{Flight: folder}}}
	for _, rank := range []int{0, 1, 2} { // the host's is 1
		s.keepFlight(&host{first: 1, count: 1}, rank, []byte("new"))
	}
	if old, err := io.ReadAll(f); string(old) != "old" || err != nil {
		t.Errorf("the file that was there has become %q, %v", old, err)
	}
	if b, err := os.ReadFile(path); string(b) != "new" || err != nil {
		t.Errorf("kept is %q, %v", b, err)
	}
	if files, err := os.ReadDir(folder); len(files) != 1 || err != nil {
		t.Errorf("in the folder are %v, %v; want one file", files, err)
	}
}

// TestSilentHostTakesOneRestart has the other ranks count those of a host as lost before the host is. Both take one restart.
func TestSilentHostTakesOneRestart(t *testing.T) {
	var stderr bytes.Buffer
	j := &launcher{
		cfg:   Config{Programs: spawn.Programs{{Ranks: 5}}, Stderr: &stderr, Generations: &generation.Config{Min: 5, Max: 5, Restarts: 1}},
		begun: time.Now(),
	}
	j.add(t, &host{Host: Host{Name: "a"}, first: 0, count: 3}, new(bytes.Buffer))
	j.add(t, &host{Host: Host{Name: "b"}, first: 3, count: 2}, new(bytes.Buffer))
	s := j.newJudge()
	s.form(5)
	for id := range 3 {
		s.elastic.Handle(id, generation.Request{Ask: &generation.Ask{Lost: []int{3, 4}}})
	}
	for s.elastic.Restarts > 0 {
		<-s.elastic.Timer()
		s.elastic.Tick()
	}
	s.settle()
	s.lose(j.hosts[1], io.EOF)
	s.settle()
	if n := len(j.hosts[0].running); s.m.Phase != job.Runs || n != 5 {
		t.Errorf("the job is in phase %d; host a has %d processes, want 5", s.m.Phase, n)
	}
	<-s.log.Close()
	s.print.close()
	<-s.print.done
	if said := stderr.String(); !strings.Contains(said, "and ranks 3, 4 with it; starting 2 ranks on other hosts (restart 1 of 1)\n") {
		t.Errorf("said %q", said)
	}
}

// TestFlightFilesAreOfLastWorld has hosts send files of several worlds of a job, in all orders. Those of the last are left.
func TestFlightFilesAreOfLastWorld(t *testing.T) {
	sent := []struct{ world, rank, size int }{{9, 0, 4}, {9, 3, 4}, {11, 0, 2}, {10, 1, 3}}
	var order func(chosen, left []int)
	order = func(chosen, left []int) {
		for i, k := range left {
			order(append(slices.Clone(chosen), k), slices.Delete(slices.Clone(left), i, i+1))
		}
		if len(left) > 0 {
			return
		}
		folder := t.TempDir()
		s := &judge{launcher: &launcher{name: "job", cfg: Config{Flight: folder, Generations: &generation.Config{Max: 4}}}, elastic: &spawn.ElasticJob{}, generation: -1}
		for _, k := range chosen {
			var b bytes.Buffer
			w := sent[k]
			r := flight.New("", flight.Origin{Name: fmt.Sprint("job.", w.world), Backend: "tcp", Rank: w.rank, Size: w.size})
			if err := r.Write(&b); err != nil {
				t.Fatal(err)
			}
			s.keepFlight(&host{}, w.rank, b.Bytes())
		}
		dumps, others, err := flight.Read(folder)
		if err != nil || len(dumps) != 1 || others != 0 || dumps[0].Job != "job.11" || dumps[0].Rank != 0 {
			t.Errorf("in order %v: %d files, and %d others, %v; want that of rank 0 of the last world", chosen, len(dumps), others, err)
		}
	}
	order(nil, []int{0, 1, 2, 3})
}

// TestHostsWithoutRanksAreHurriedAtEnd checks which hosts have to answer soon: those on which no ranks run once the job ends.
func TestHostsWithoutRanksAreHurriedAtEnd(t *testing.T) {
	s := &judge{m: job.New(job.Config{Now: time.Now, Ranks: 1, Terminate: func() {}})}
	s.launcher = &launcher{hosts: []*host{{running: map[int]bool{0: true}}, {}, {state: hostEnded}, {state: hostLost}}}
	for _, step := range []struct {
		what string
		do   func()
		want []bool
	}{
		{"a rank runs", func() {}, []bool{false, false, false, false}},
		{"the job ends", func() { s.m.End(1, nil, "") }, []bool{false, true, false, false}},
		{"the rank has ended", func() { s.m.Running = 0; clear(s.hosts[0].running) }, []bool{true, true, false, false}},
	} {
		step.do()
		s.hurry()
		for i, h := range s.hosts {
			if got := h.most.Load() == hurried; got != step.want[i] {
				t.Errorf("%s: host %d has to answer soon: %v, want %v", step.what, i, got, step.want[i])
			}
		}
	}
}

// TestDueStartKeepsSlot has a rank wait to be started again on its host, and another need a place then. The rank keeps its slot.
func TestDueStartKeepsSlot(t *testing.T) {
	j := &launcher{
		cfg:   Config{Programs: spawn.Programs{{Ranks: 5}}, Stderr: io.Discard, Generations: &generation.Config{Min: 5, Max: 5, Restarts: 9}},
		begun: time.Now(),
	}
	for _, h := range []*host{
		{Host: Host{Name: "a", Slots: 3}, first: 0, count: 2}, {Host: Host{Name: "b", Slots: 2}, first: 2, count: 2}, {Host: Host{Name: "c", Slots: 1}, first: 4, count: 1},
	} {
		j.add(t, h, new(bytes.Buffer))
	}
	s := j.newJudge()
	a, b, c := j.hosts[0], j.hosts[1], j.hosts[2]
	for !s.elastic.Due(3) {
		for id := range b.running {
			if s.rank(id) == 3 {
				s.exited(b, job.Exit{Rank: 3, ID: id, Status: 9, How: "exited with status 9", After: "1 s"})
				break
			}
		}
	}
	s.lose(c, io.EOF)
	s.settle()
	if len(a.running) != 3 || len(b.running) != 1 {
		t.Errorf("host a has %d ranks and b %d, want 3 and 1", len(a.running), len(b.running))
	}
	for s.elastic.Due(3) {
		<-s.elastic.Timer()
		s.elastic.Tick()
	}
	if len(a.running) != 3 || len(b.running) != 2 {
		t.Errorf("host a has %d ranks and b %d, want 3 and 2", len(a.running), len(b.running))
	}
	<-s.log.Close()
	s.print.close()
	<-s.print.done
}
