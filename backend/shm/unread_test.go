//go:build linux

package shm

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

func init() {
	// The sender of a synchronous message ends before the receiver, which does not know that yet, reads it.
	// The receive fails instead of returning zeros.
	programs["unread"] = func(c backend.Comm) error {
		const victim, size = 1, 4000
		e := c.(*comm).e
		if !e.cma {
			return errors.New("this kernel forbids copies between processes")
		}
		if c.Rank() == victim {
			q := &backend.Request{}
			q.Begin()
			c.Isend(q, make([]byte, size), 0, 1, backend.Synchronous) // the RTS is in the ring
			die()
		}
		q := &backend.Request{}
		q.Begin()
		e.mu.Lock() // without it the watch says nothing
		for runs(e.pids[victim]) {
		}
		o := e.getOp()
		o.comm, o.req = c.(*comm), q
		q.Impl = o
		e.recv(o, make([]byte, size), c.(*comm).pattern(victim, 1))
		for range 3 { // as in a round of progress that began before the news
			e.drain(victim, false)
			e.moveTakes()
		}
		e.unlock()
		return errors.Join(c.Await(nil, q), lost(q.Err, victim))
	}
}

// runs reports whether a process has memory.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestSynchronousMessageOfDeadSenderIsErrPeerLost(t *testing.T) { survive(t, "unread", 2, 1) }
