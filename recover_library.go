package cohort

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Agree and Shrink on a backend whose library carries them out.

// recoverer returns the backend's communicator if its library does so.
func (c *Comm) recoverer() (bc backend.Recoverer, ok bool) {
	if c == nil || c.core == nil {
		return nil, false
	}
	bc, ok = c.core.bc.(backend.Recoverer)
	return bc, ok
}

func (c *Comm) agreeBy(bc backend.Recoverer, flag int, fail func(error) (int, error)) (int, error) {
	if err := c.take(); err != nil {
		return fail(err)
	}
	defer c.core.busy.Store(false)
	var all int
	err := c.core.recordAgreement(bc, flight.Agree, func() (err error) {
		all, err = bc.Agree(c.bound, flag)
		return err
	})
	if err != nil {
		return fail(err)
	}
	return all, nil
}

func (c *Comm) shrinkBy(bc backend.Recoverer, fail func(error) (*Comm, error)) (*Comm, error) {
	if err := c.take(); err != nil {
		return fail(err)
	}
	k := c.core
	defer k.busy.Store(false)
	ids := &k.job.ids
	if !k.shrinking { // otherwise this call continues the one that timed out
		ids.begin()
		k.shrinking = true
	}
	var made backend.Comm
	var id uint32
	err := k.recordAgreement(bc, flight.Shrink, func() (err error) {
		made, id, err = bc.Shrink(c.bound, claimer{ids})
		return err
	})
	if errors.Is(err, ErrTimeout) || errors.Is(err, ErrCanceled) {
		return fail(err)
	}
	k.shrinking = false
	ids.end()
	if err != nil {
		return fail(err)
	}
	return c.child("shrink", made, id), nil
}

// recordAgreement records an Agree or Shrink that the library carries out. Those of a communicator are
// numbered; one that continues after a timeout keeps its number.
func (k *core) recordAgreement(bc backend.Recoverer, kind flight.Kind, call func() error) error {
	if bc.Recovers() != nil || k.pending != 0 && k.pending != kind {
		return call() // it returns an error
	}
	if k.pending == 0 {
		k.pending = kind
		k.agreements++
	}
	t := k.recorder.Begin(k.message(kind, backend.Blocking), 0, flight.Pair(0, 0), flight.Pair(^uint32(0), k.agreements)) // no peer
	err := call()
	k.ended(t, err)
	if !errors.Is(err, ErrTimeout) && !errors.Is(err, ErrCanceled) {
		k.pending = 0
	}
	return err
}

// claimer is a job's backend.Claimer.
type claimer struct{ ids *idSpace }

// Propose implements backend.Claimer.
func (c claimer) Propose(attempt uint32) uint32 { return c.ids.propose(attempt, 0) }

// Claim implements backend.Claimer.
func (c claimer) Claim(id uint32) bool { return c.ids.claim(id) }
