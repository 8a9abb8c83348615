package cohort

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
)

// Agree and Shrink where the library beneath the backend agrees itself.

// recoverer returns the communicator of such a library.
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
	all, err := bc.Agree(c.bound, flag)
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
	if !k.shrinking { // else it goes on where it was, and has begun
		ids.begin()
		k.shrinking = true
	}
	made, id, err := bc.Shrink(c.bound, claimer{ids})
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

// claimer hands out the ids of a job.
type claimer struct{ ids *idSpace }

// Propose implements backend.Claimer.
func (c claimer) Propose(attempt uint32) uint32 { return c.ids.propose(attempt, 0) }

// Claim implements backend.Claimer.
func (c claimer) Claim(id uint32) bool { return c.ids.claim(id) }
