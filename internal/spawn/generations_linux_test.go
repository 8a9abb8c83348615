package spawn

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// dial connects to a job's socket and sends text.
func dial(t *testing.T, cfg Config, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", filepath.Join(cfg.Folder, Socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte(text)); err != nil && !strings.Contains(err.Error(), "broken pipe") {
		t.Fatal(err)
	}
	return c
}

// closed reports whether the launcher closes a connection without a message.
func closed(c net.Conn) bool {
	n, err := c.Read(make([]byte, 1))
	return n == 0 && err != nil && !os.IsTimeout(err)
}

// A connection that is not one of a process, or sends what is no request, is closed. Others, and the job, go on.
func TestSocketClosesBadConnections(t *testing.T) {
	cfg := replaceable(t, 2, 1, "wait")
	j := start(t, cfg)
	cfg.Stdout.(*buffer).await(t, "ready", 2)
	first := dial(t, cfg, "0\n{\"Ask\":{}}\n")
	for _, text := range []string{"\n", "x\n", "-1\n", "2\n", "99999999999999999999\n", "1\n}\n", "1\n{\"Ask\":7}\n", strings.Repeat("1", 2*mostText), "1\n" + strings.Repeat(" ", 2*mostText)} {
		if !closed(dial(t, cfg, text)) {
			t.Errorf("%.20q: a message comes", text)
		}
	}
	// Only now may there be another connection of process 0, and its request is still known.
	if second := dial(t, cfg, "0\n{\"Ask\":{}}\n"); !closed(second) {
		t.Error("a second connection of process 0 is kept")
	}
	other := dial(t, cfg, "1\n{\"Ask\":{}}\n")
	for rank, c := range []net.Conn{first, other} {
		b := make([]byte, 1000)
		n, err := c.Read(b)
		if want := fmt.Sprintf(`{"Place":{"Generation":0,"Rank":%d,"Size":2,"Job":"%s.0"}}`+"\n", rank, j.cfg.Job); string(b[:n]) != want {
			t.Errorf("process %d: got %q, %v, want %q", rank, b[:n], err, want)
		}
	}
	j.Stop()
	wait(t, j)
	if _, err := os.Stat(filepath.Join(cfg.Folder, Socket)); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}

// The connection of a process that reads nothing is closed when too much waits for it. It does not hold up the job.
func TestSocketDropsProcessThatDoesNotRead(t *testing.T) {
	cfg := replaceable(t, 1, 1, "wait")
	j := start(t, cfg)
	cfg.Stdout.(*buffer).await(t, "ready", 1)
	c := dial(t, cfg, "0\n{\"Ask\":{}}\n")
	share := []byte(`{"Share":"` + strings.Repeat("x", mostText/2) + "\"}\n")
	for {
		if _, err := c.Write(share); err != nil {
			break
		}
	}
	j.Stop()
	wait(t, j)
}

// Processes that are started later have the rank, output, group and descriptors of those in whose place they are started, and
// none of the launcher's descriptors is left of those.
func TestReplacedProcessIsLikeTheFirst(t *testing.T) {
	cfg := replaceable(t, 2, 100, "wait")
	j := start(t, cfg)
	stdout := cfg.Stdout.(*buffer)
	stdout.await(t, "ready", 2)
	before := len(descriptors())
	latest := func() int {
		pid := make(chan int)
		j.ask(func(s *state) { pid <- s.ranks[len(s.ranks)-1].pgid })
		return <-pid
	}
	for n := 1; n <= 3; n++ {
		syscall.Kill(-latest(), syscall.SIGKILL)
		stdout.await(t, "[1] ready\n", n+1)
		if pid := latest(); groupOf(pid) != pid {
			t.Errorf("process %d is in group %d", pid, groupOf(pid))
		}
	}
	for end := time.Now().Add(patience); len(descriptors()) > before && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // poll
	}
	if after := len(descriptors()); after > before {
		t.Errorf("%d descriptors, before the restarts %d", after, before)
	}
	j.Stop()
	wait(t, j)
	stdout.await(t, "[1] got terminated\n", 1)
}

func groupOf(pid int) int {
	group, _ := syscall.Getpgid(pid)
	return group
}

func TestSocketNeedsShortPath(t *testing.T) {
	cfg := replaceable(t, 1, 1, "wait")
	cfg.Folder = filepath.Join(cfg.Folder, strings.Repeat("x", socketPath))
	if _, err := Start(cfg); err == nil || !strings.Contains(err.Error(), "set TMPDIR to a folder with a shorter path") {
		t.Errorf("got %v", err)
	}
}

// A process that the others count as lost while it is stopped, after it has asked for a place, is told that it is out, and does
// not end. When all others have ended, the launcher ends it, and it does not count.
func TestJobEndsWithoutStoppedOutcast(t *testing.T) {
	cfg := replaceable(t, 3, 1, "wait")
	j := start(t, cfg)
	stdout := cfg.Stdout.(*buffer)
	stdout.await(t, "ready", 3)
	var links []net.Conn
	reads := func(id int, want string) {
		t.Helper()
		b := make([]byte, 1000)
		if n, err := links[id].Read(b); !strings.Contains(string(b[:n]), want) {
			t.Fatalf("process %d: got %q, %v, want %q", id, b[:n], err, want)
		}
	}
	says := func(id int, text string) {
		t.Helper()
		if _, err := links[id].Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for id := range 3 {
		links = append(links, dial(t, cfg, fmt.Sprintf("%d\n{\"Ask\":{}}\n", id)))
	}
	for id := range 3 {
		reads(id, `"Place"`)
		says(id, `{"Joined":true}`+"\n")
	}
	for id := range 3 {
		reads(id, `"Go"`)
	}
	syscall.Kill(j.ranks[2].pgid, syscall.SIGSTOP)
	says(2, `{"Ask":{}}`+"\n")
	says(0, `{"Ask":{"Lost":[2]}}`+"\n")
	says(1, `{"Ask":{"Lost":[2]}}`+"\n")
	reads(2, `"Out"`)
	stdout.await(t, "[2] ready\n", 2)
	for _, id := range []int{0, 1, 3} {
		syscall.Kill(j.process(id).pgid, syscall.SIGTERM)
	}
	if r := wait(t, j); r.Status != 0 {
		t.Errorf("the status is %d, want 0", r.Status)
	}
	if text := cfg.Stderr.(*buffer).String(); !strings.Contains(text, "cohort: all ranks have ended; ending what is left of rank 2, which the others count as lost\n") {
		t.Errorf("standard error has %q", text)
	}
}
