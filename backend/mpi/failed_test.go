//go:build cgo && linux

package mpi

import (
	"errors"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A rank that has failed ends the calls on a communicator that is not broken yet: fails breaks one after the other.
func TestFailedRankEndsCallsBeforeCommunicatorIsBroken(t *testing.T) {
	c := newTestComm()
	c.size, c.rank, c.world = 2, 1, []int{0, 1}
	c.p.world, c.p.level = c, libmpi.Multiple
	c.transactions = newTransactions(1, false, func(int, []byte) bool { return false }) // the library has been left
	c.p.failed.Store(&failure{why: backend.Faultf(backend.ErrPeerLost, "made up")})
	libmpi.EndBlocked()
	for what, err := range map[string]error{
		"usable":               c.usable(),
		"a call that was left": c.fault(libmpi.Ended),
		"together":             c.together(nil, []int{0, 1}, 1, func() error { return nil }),
	} {
		if !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("%s: got %v, want ErrPeerLost", what, err)
		}
	}
}
