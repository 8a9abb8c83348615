package comm

import (
	"errors"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/word"
)

// recovery is the state of a communicator's Agree and Shrink. The goroutine that has taken the
// communicator uses it.
type recovery struct {
	pending flight.Kind // the call that has not ended; 0: none
	calls   uint32      // the number of calls begun

	// The agreement of a Shrink that has run out of time, nil if there is none. The Shrink that continues it takes it from
	// here. So does Close, after which none does: a Shrink puts it back and then looks whether Close has begun.
	suspended word.Pointer[agreement]
}

// abandon ends the agreement of a Shrink that no call continues.
func (r *recovery) abandon() {
	if a := r.suspended.Swap(nil); a != nil {
		a.conclude()
	}
}

// Agree returns the bitwise and of the flags of the ranks that are not lost.
func (c *Comm) Agree(flag int) (all int, err error) {
	c = c.withDeadline()
	err = c.runRecovery(flight.Agree, func(bc backend.Recovery) error {
		all, err = bc.Agree(c.bound, flag)
		return err
	})
	if err != nil {
		return 0, c.failed("agree", err)
	}
	return all, nil
}

// Shrink makes a communicator of the ranks that are not lost and have not closed c.
func (c *Comm) Shrink() (*Comm, error) {
	var made backend.Comm
	var id uint32
	c = c.withDeadline()
	err := c.runRecovery(flight.Shrink, func(bc backend.Recovery) (err error) {
		r, j := &c.core.recovery, c.core.job
		a := r.suspended.Swap(nil)
		if a == nil {
			a = j.newAgreement()
		}
		if made, id, err = bc.Shrink(c.bound, &j.ids); !unfinished(err) {
			a.conclude()
			return err
		}
		if r.suspended.Store(a); c.core.life.ended() {
			r.abandon()
		}
		return err
	})
	if err != nil {
		return nil, c.failed("shrink", err)
	}
	c.core.job.continueWithout(c.core)
	d, err := c.child("shrink", made, id)
	return d, c.failed("shrink", err)
}

// Lost returns the ranks that this rank knows to be lost or to have left the job in good order.
func (c *Comm) Lost() (ranks []int) {
	if c == nil || c.core == nil || c.core.recoverer == nil {
		return nil
	}
	gone := c.core.recoverer.Lost()
	for i := range c.core.size {
		if len(gone) > 0 && slices.Contains(gone, c.core.bc.WorldRank(i)) {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Dead returns the ranks of a world that this rank knows to be lost, without those that have left the job in good order
// where the backend tells them apart.
func (c *Comm) Dead() []int {
	if _, ok := c.facts().bc.(backend.FailureReporter); ok {
		return Failed(c.facts().bc)
	}
	return c.Lost()
}

// Failed returns the ranks that a world's communicator knows to be lost, nil if its backend does not tell them from those
// that have left the job in good order.
func Failed(bc backend.Comm) []int {
	if f, ok := bc.(backend.FailureReporter); ok {
		return f.Failed()
	}
	return nil
}

// Revoke ends the operations of all ranks on c.
func (c *Comm) Revoke() error {
	err := c.Usable()
	if err == nil {
		err = c.core.recovers()
	}
	if err == nil {
		err = c.core.recoverer.Revoke(fault(backend.ErrBroken, "rank %d revoked it", c.core.rank))
	}
	return c.failed("revoke", err)
}

// recovers returns an error if the backend cannot continue after failures.
func (k *core) recovers() error {
	if k.recoverer == nil {
		return fault(backend.ErrNotSupported, "backend %s cannot continue after a failure; use local, shm or tcp", k.bc.Caps().Backend)
	}
	return nil
}

// runRecovery makes an Agree or a Shrink, and records it. The calls of a communicator are numbered; one that
// continues after a timeout keeps its number.
func (c *Comm) runRecovery(kind flight.Kind, call func(backend.Recovery) error) error {
	if err := c.take(); err != nil {
		return err
	}
	k := c.core
	defer k.life.leave()
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
	err := k.traced(k.numbered(kind, -1, r.calls), func() error { return call(k.recoverer) }) // no peer
	if !unfinished(err) {
		r.pending = 0
	}
	return err
}

// unfinished reports whether err says that a call is out of time. The next Agree or Shrink continues such a call.
func unfinished(err error) bool {
	return errors.Is(err, backend.ErrTimeout) || errors.Is(err, backend.ErrCanceled)
}
