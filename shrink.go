package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// controlID is a bit that is set in the context ids of control communicators only.
const controlID = 1 << 31

// shrinking is the state of a Shrink. It can time out only in one of its agreements, and then continues
// there.
type shrinking struct {
	phase   uint32 // the current agreement; 0 before the first
	attempt uint32
	id      uint32
	lost    agree.Set // world ranks
	gone    agree.Set
	made    backend.Comm
	failed  error // why this rank could not make the communicator
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
	fail := func(err error) (*Comm, error) { return nil, c.failed("shrink", Undefined, Undefined, err) }
	if bc, ok := c.recoverer(); ok {
		return c.shrinkBy(bc, fail)
	}
	r, err := c.recovering("Shrink")
	if err != nil {
		return fail(err)
	}
	defer c.core.busy.Store(false)
	s, ids := &r.shrink, &c.core.job.ids
	if s.phase == 0 {
		ids.begin()
	}
	t := r.note(flight.Shrink)
	err = s.run(r, c.bound)
	c.core.ended(t, err)
	if r.doing == "Shrink" && err != nil && r.current != nil {
		return fail(err) // the next call continues it
	}
	bc, id := s.made, s.id
	r.shrink, r.doing = shrinking{}, ""
	ids.end()
	if err != nil {
		if bc != nil {
			_ = bc.Close()
		}
		return fail(err)
	}
	return c.child("shrink", bc, id), nil
}

// run makes the communicator:
//
//  1. Agree on the lost ranks, and on the largest number proposed for the context id.
//  2. Claim the number. Agree on whether all ranks could, and whether more ranks are lost by now. If a
//     claim failed, or more ranks are lost, start again from 1.
//  3. Make the communicator, and agree on whether all ranks could.
func (s *shrinking) run(r *recovery, b *backend.Bound) error {
	ids := &r.k.job.ids
	if s.phase == 0 {
		s.phase = agreeLost
	}
	for {
		rec, err := r.agree(b, s.phase, func() (flags uint64, number uint32) {
			switch s.phase {
			case agreeLost:
				number = ids.propose(s.attempt, r.seq)
			case agreeClaim:
				if ids.claim(s.id) {
					flags = 1
				}
			case agreeMade:
				if s.failed == nil {
					flags = 1
				}
			}
			return flags, number
		})
		if err != nil {
			return err
		}
		r.doing = "Shrink"
		switch s.phase {
		case agreeLost:
			if err := spent(rec.Number); err != nil {
				return err
			}
			s.id, s.lost, s.gone = rec.Number, rec.Lost, rec.Gone
			s.phase = agreeClaim
		case agreeClaim:
			if rec.Flags != 1 || rec.Lost.Len() != s.lost.Len() || rec.Gone.Len() != s.gone.Len() {
				s.attempt++
				s.phase = agreeLost
				continue
			}
			s.made, s.failed = r.bc.Acknowledge(s.survivors(r), s.id, s.lost.List())
			s.phase = agreeMade
		default:
			switch {
			case s.failed != nil:
				return s.failed
			case rec.Flags != 1:
				return fault(ErrAlloc, "another rank could not make the communicator")
			}
			return nil
		}
	}
}

// survivors returns the members of the new communicator.
func (s *shrinking) survivors(r *recovery) (members []int) {
	for m := range r.k.size {
		if !s.gone.Has(m) && !s.lost.Has(r.bc.WorldRank(m)) {
			members = append(members, m)
		}
	}
	return members
}
