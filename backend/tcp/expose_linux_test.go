package tcp

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

func init() {
	// Rank 0 offers a message and then holds its lock, so that it can do nothing. Rank 1 comes to have all
	// the bytes nevertheless, and its receive is not complete, because rank 0 could still take them back.
	programs["exposed"] = func(c backend.Comm) error {
		const n = 3<<20 + 5
		b := &backend.Bound{Timeout: time.Minute}
		e := c.(*comm).e
		q := &backend.Request{}
		want := fill(make([]byte, n), 7)
		if c.Rank() == 0 {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
			defer stop()
			if _, err := c.Recv(b, nil, 1, 1); err != nil { // its receive is posted
				return err
			}
			q.Begin()
			c.Isend(q, want, 1, 2, backend.Standard)
			e.mu.Lock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			e.mu.Unlock()
			if ctx.Err() == nil {
				return errors.New("the message is not where it belongs")
			}
			return errors.Join(c.Await(b, q), q.Err)
		}
		buf := make([]byte, n)
		q.Begin()
		c.Irecv(q, buf, 0, 2)
		if err := c.Send(b, nil, 0, 1, backend.Standard); err != nil {
			return err
		}
		for end := time.Now().Add(time.Minute); !bytes.Equal(buf, want) && time.Now().Before(end); {
			c.Poll()
		}
		for range 100 {
			c.Poll()
		}
		if q.Ready() {
			return errors.New("the receive is complete, and its sender has not heard of it")
		}
		if err := syscall.Kill(e.links[0].pid, syscall.SIGUSR1); err != nil {
			return err
		}
		if err := errors.Join(c.Await(b, q), q.Err); err != nil {
			return err
		}
		if q.Status.Bytes != n || !bytes.Equal(buf, want) {
			return errors.New("the message is another one, or damaged")
		}
		return nil
	}
}

func TestLongMessagesAreReadFromThePeer(t *testing.T) {
	if b, _ := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); len(b) > 0 && b[0] != '0' && os.Geteuid() != 0 {
		t.Skipf("the kernel lets processes read the memory of their descendants alone: ptrace_scope is %s", bytes.TrimSpace(b))
	}
	launch(t, "exposed", 2, "TCP_TEST_RING=4096", "TCP_TEST_EXPOSE=1", "TCP_TEST_CROWDED=1")
}

// TestReadable checks that memory is taken for readable only if what is there was read.
func TestReadable(t *testing.T) {
	if got := readable(claim()); got != os.Getpid() {
		t.Errorf("the own memory: process %d, want %d", got, os.Getpid())
	}
	for what, change := range map[string]func(b []byte) []byte{
		"another text":   func(b []byte) []byte { b[claimSize-1]++; return b },
		"no such memory": func(b []byte) []byte { copy(b[8:16], strings.Repeat("\x01", 8)); return b },
		"no such process": func(b []byte) []byte {
			copy(b, []byte{0, 0, 0, 0x40, 0, 0, 0, 0})
			return b
		},
		"a negative one": func(b []byte) []byte { copy(b, strings.Repeat("\xff", 8)); return b },
		"too short":      func(b []byte) []byte { return b[:claimSize-1] },
		"nothing":        func([]byte) []byte { return nil },
	} {
		if got := readable(change(claim())); got != 0 {
			t.Errorf("%s: process %d", what, got)
		}
	}
}
