package cohort

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// recovery is the state of a communicator's Agree and Shrink. The goroutine that has set core.busy uses
// it.
type recovery struct {
	pending   flight.Kind // the call that has not ended; 0: none
	calls     uint32      // the number of calls begun
	shrinking bool        // a Shrink has not ended, or has timed out
}

// Agree returns the bitwise and of the flags of all participating ranks of c. The result is the same
// on all of them, even on a rank that fails right after Agree has returned. Agree works on a
// communicator that has lost ranks, is broken, or has been revoked. When it returns, every rank knows
// all failures that any of them knew before.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it. If
// a rank fails during the call, either all results include its flag or none does.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Shrink; [ErrBusy]; [ErrRequest] if the last Shrink timed
// out; [ErrNotSupported] on mpi if the library cannot continue after failures, or if the flag has more
// than 32 bits.
//
// Deadline: [ErrTimeout] names ranks that have not arrived. The agreement has not ended then, because
// other ranks may already use this rank's flag. Call Agree again to continue it; the flag of the first
// call counts.
func (c *Comm) Agree(flag int) (all int, err error) {
	err = c.recover(flight.Agree, func(bc backend.Recovery) error {
		all, err = bc.Agree(c.bound, flag)
		return err
	})
	if err != nil {
		return 0, c.failed("agree", Undefined, Undefined, err)
	}
	return all, nil
}

// Shrink makes a communicator of the ranks of c that are not lost and have not closed c, in the same
// order. It works on a communicator that has lost ranks, is broken, or has been revoked. The new
// communicator supports all operations. The next failure breaks it, and then Shrink works on it in
// turn. If no rank is lost, it has the same ranks as c.
//
// Collective over the survivors: the ranks of c that are not lost, and have not closed c, call it.
//
// Errors: [ErrPeerLost] if the others have declared this rank lost, or the job has been aborted;
// [ErrMismatch] on every rank if one calls Agree; [ErrBusy]; [ErrRequest] if the last Agree timed out;
// [ErrNotSupported] on mpi if the library cannot continue after failures. If one rank cannot make the
// communicator, no rank gets it.
//
// Deadline: [ErrTimeout] names ranks that have not arrived. Call Shrink again to continue it.
func (c *Comm) Shrink() (*Comm, error) {
	var made backend.Comm
	var id uint32
	err := c.recover(flight.Shrink, func(bc backend.Recovery) (err error) {
		r, ids := &c.core.recovery, &c.core.job.ids
		if !r.shrinking { // otherwise this call continues the one that timed out
			ids.begin()
			r.shrinking = true
		}
		made, id, err = bc.Shrink(c.bound, claimer{ids})
		if !unfinished(err) {
			r.shrinking = false
			ids.end()
		}
		return err
	})
	if err != nil {
		return nil, c.failed("shrink", Undefined, Undefined, err)
	}
	return c.child("shrink", made, id), nil
}

// Lost returns, in ascending order, the ranks of c that this rank knows to be lost or to have left
// the job in good order. It is nil if there are none. Other ranks may get other results until the next
// Agree or Shrink.
//
// Local.
func (c *Comm) Lost() []int {
	if c == nil || c.core == nil || c.core.recoverer == nil {
		return nil
	}
	gone := c.core.recoverer.Lost()
	var ranks []int
	for i := range c.core.size {
		if len(gone) > 0 && slices.Contains(gone, c.core.bc.WorldRank(i)) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Revoke ends the operations of all ranks on c, pending and later ones, with [ErrBroken]. The error
// names the calling rank, except on mpi. A rank that has learned of a failure calls Revoke so that
// ranks that wait for something else learn of it too. Agree and Shrink still work.
//
// Local: one rank is enough, and Revoke does not wait.
//
// Errors: [ErrClosed]; [ErrNotSupported] on mpi if the library cannot continue after failures.
func (c *Comm) Revoke() error {
	err := c.open()
	if err == nil {
		if err = c.core.recovers(); err == nil {
			err = c.core.recoverer.Revoke(fault(ErrBroken, fmt.Sprintf("rank %d revoked it", c.core.rank)))
		}
	}
	if err != nil {
		return c.failed("revoke", Undefined, Undefined, err)
	}
	return nil
}

// recovers returns an error if the backend cannot continue after failures.
func (k *core) recovers() error {
	if k.recoverer == nil {
		return fault(ErrNotSupported, fmt.Sprintf("backend %s cannot continue after a failure; use local, shm or tcp", k.bc.Caps().Backend))
	}
	return nil
}

// recover makes an Agree or a Shrink, and records it. The calls of a communicator are numbered; one that
// continues after a timeout keeps its number.
func (c *Comm) recover(kind flight.Kind, call func(backend.Recovery) error) error {
	if err := c.take(); err != nil {
		return err
	}
	k := c.core
	defer k.busy.Store(false)
	if err := k.recovers(); err != nil {
		return err
	}
	r := &k.recovery
	if r.pending != 0 && r.pending != kind {
		return call(k.recoverer) // it returns an error
	}
	if r.pending == 0 {
		r.pending = kind
		r.calls++
	}
	t := k.recorder.Begin(k.message(kind, backend.Blocking), 0, flight.Pair(0, 0), flight.Pair(^uint32(0), r.calls)) // no peer
	err := call(k.recoverer)
	k.ended(t, err)
	if !unfinished(err) {
		r.pending = 0
	}
	return err
}

// unfinished reports whether the next call continues one that returned err.
func unfinished(err error) bool { return errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) }

// claimer is a job's backend.Claimer.
type claimer struct{ ids *idSpace }

// Propose implements backend.Claimer.
func (c claimer) Propose(attempt, salt uint32) uint32 { return c.ids.propose(attempt, salt) }

// Claim implements backend.Claimer.
func (c claimer) Claim(id uint32) (bool, error) {
	if err := spent(id); err != nil {
		return false, err
	}
	return c.ids.claim(id), nil
}
