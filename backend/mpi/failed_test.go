//go:build cgo && linux

package mpi

import (
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// second returns rank 1 of two, which has left the library. sends says whether its messages go out nevertheless.
func second(sends bool) *comm {
	c := newTestComm()
	c.size, c.rank, c.world = 2, 1, []int{0, 1}
	c.p.world, c.p.lib.level = c, libmpi.Multiple
	c.transactions = newTransactions(1, false, func(int, []byte) bool { return sends })
	libmpi.EndBlocked()
	return c
}

// A rank that has failed ends the calls on a communicator that is not broken yet: fails breaks one after the other.
func TestFailedRankEndsCallsBeforeCommunicatorIsBroken(t *testing.T) {
	c := second(false)
	c.p.failed.Store(&failure{why: backend.Faultf(backend.ErrPeerLost, "made up")})
	_, together := c.together(nil, []int{0, 1}, 1, func() error { return nil }, nil)
	for what, err := range map[string]error{
		"usable":               c.usable(),
		"a call that was left": c.fault(libmpi.Ended),
		"together":             together,
	} {
		if !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("%s: got %v, want ErrPeerLost", what, err)
		}
	}
}

// A member is prepared when its time is up, and the coordinator is stopped before it decides. The member returns. When the
// coordinator goes on, the member makes the call if the others do.
func TestPreparedMemberReturnsAtItsDeadline(t *testing.T) {
	for _, decision := range []byte{commit, abort} {
		c := second(true)
		tr := &c.transactions
		calls, late := 0, make(chan bool)
		go func() {
			for said := false; !said; {
				tr.mu.Lock()
				if p := tr.joins[7]; p != nil && p.state == joined {
					said = true
					tr.handle(0, prepare, 7, nil)
				}
				tr.mu.Unlock()
			}
		}()
		begun := time.Now()
		made, err := c.together(&backend.Bound{Timeout: 50 * time.Millisecond}, []int{0, 1}, 7,
			func() error { calls++; return nil }, func(made bool, _ error) { late <- made })
		if took := time.Since(begun); !made || !errors.Is(err, backend.ErrTimeout) || took > time.Minute {
			t.Errorf("after %v: made %v, %v; want ErrTimeout, and that the others may make it", took, made, err)
		}
		tr.mu.Lock()
		tr.handle(0, decision, 7, backend.Faultf(backend.ErrTimeout, "made up").Encode(noticeSize))
		tr.mu.Unlock()
		if made := <-late; made != (decision == commit) || made != (calls == 1) || c.broken.Load() != nil {
			t.Errorf("decision %d: made %v, %d calls", decision, made, calls)
		}
	}
}
