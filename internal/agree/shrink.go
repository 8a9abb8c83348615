package agree

import "github.com/cohort-hpc/cohort/backend"

// shrinking is the state of a Shrink. It can time out only in one of its agreements, and then continues
// there.
type shrinking struct {
	phase   uint32 // the current agreement; 0 before the first
	attempt uint32
	id      uint32
	free    bool // this rank could claim the id
	lost    Set  // world ranks
	gone    Set
	failed  error // why this rank could not make the communicator
}

// Shrink implements backend.Recovery.
func (r *Recovery) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	if err := r.open("Shrink"); err != nil {
		return nil, 0, err
	}
	s := &r.shrink
	err := s.run(r, b, ids)
	if r.doing != "" && err != nil && r.current != nil {
		return nil, 0, err // the next call continues it
	}
	id := s.id
	r.shrink, r.doing = shrinking{}, ""
	if err != nil {
		r.discard()
		return nil, 0, err
	}
	made := r.takeMade()
	if made == nil {
		return nil, 0, backend.CommClosed
	}
	return made, id, nil
}

// run makes the communicator:
//
//  1. Agree on the lost ranks, and on the largest number proposed for the context id.
//  2. Claim the number. Agree on whether all ranks could, and whether more ranks are lost by now. If a
//     claim failed, or more ranks are lost, start again from 1.
//  3. Make the communicator, and agree on whether all ranks could. If more ranks are lost, or have closed
//     the old communicator, close the new one and start again from 1.
//
// Invariant: every member of a communicator that Shrink returns has made it. A member that does not return it is lost,
// or closes it with the old one.
func (s *shrinking) run(r *Recovery, b *backend.Bound, ids backend.Claimer) error {
	if s.phase == 0 {
		s.phase = agreeLost
	}
	for {
		rec, err := r.agree(b, s.phase, func() (flags uint64, number uint32) {
			if s.phase == agreeLost {
				return 0, ids.Propose(s.attempt, r.seq)
			}
			if s.phase == agreeClaim && s.free || s.phase == agreeMade && s.failed == nil {
				flags = 1
			}
			return flags, 0
		})
		if err != nil {
			return err
		}
		r.doing = "Shrink"
		switch {
		case s.phase == agreeLost:
			if s.free, err = ids.Claim(rec.Number); err != nil {
				return err
			}
			s.id, s.lost, s.gone = rec.Number, rec.Lost, rec.Gone
			s.phase = agreeClaim
		case s.phase == agreeClaim && rec.Flags != 1 || rec.Lost.Len() != s.lost.Len() || rec.Gone.Len() != s.gone.Len():
			r.discard()
			s.attempt++
			s.phase = agreeLost
		case s.phase == agreeClaim:
			s.failed = s.make(r)
			s.phase = agreeMade
		case s.failed != nil:
			return s.failed
		case rec.Flags != 1:
			return backend.Faultf(backend.ErrAlloc, "another rank could not make the communicator")
		default:
			return nil
		}
	}
}

// make makes the communicator. If Close has begun, it closes it.
func (s *shrinking) make(r *Recovery) error {
	made, err := r.Of.Acknowledge(s.survivors(r.Of), s.id, s.lost.List())
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.made = made
	closed := r.closed
	r.mu.Unlock()
	if closed {
		r.discard()
	}
	return nil
}

// survivors returns the members of the new communicator.
func (s *shrinking) survivors(c Comm) (members []int) {
	for m := range c.Size() {
		if !s.gone.Has(m) && !s.lost.Has(c.WorldRank(m)) {
			members = append(members, m)
		}
	}
	return members
}
