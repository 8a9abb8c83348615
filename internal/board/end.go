package board

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// ownSlots are the slots of this rank for a communicator.
type ownSlots struct {
	mine       *slots
	index      int           // of mine
	gate       uint32        // of mine: see enter
	closed     bool          // mine are not needed any more; the engine's lock guards it
	persistent []*Collective // the slots of persistent operations
}

// The values of ownSlots.gate. A goroutine that is inside may write to this rank's slots, and nobody gives them back
// meanwhile. Operations write to the slots with mu held, unless the slots are given back, and mu is held to give them back.
// One goroutine at a time is in a blocking call, so leave is a plain store. A gate.Gate would cost each call 12 ns more.
const (
	gateUnused uint32 = iota // this rank has neither arrived at any collective nor published a reason
	gateInside               // a goroutine is in a blocking call; there is one at a time
	gateOutside
	gateShut // the slots are given back
)

// enter lets the caller in until leave. It returns false if the slots are given back.
func (s *Collective) enter() bool {
	g := word.LoadUint32(&s.gate)
	for g != gateShut && !word.CompareAndSwapUint32(&s.gate, g, gateInside) {
		g = word.LoadUint32(&s.gate) // Ended has used the slots, or they were given back
	}
	return g != gateShut
}

// claim notes that this rank uses the slots, for an operation that writes to them with mu held. It returns false if
// they are given back. mu is held.
func (s *Collective) claim() bool {
	if word.LoadUint32(&s.gate) == gateUnused {
		word.CompareAndSwapUint32(&s.gate, gateUnused, gateOutside)
	}
	return word.LoadUint32(&s.gate) != gateShut
}

func (s *Collective) leave() { releaseGate(&s.gate, gateOutside) }

// shut gives the slots back if the gate has one of some values, and reports whether they are given back.
func (s *Collective) shut(from ...uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range from {
		if word.CompareAndSwapUint32(&s.gate, g, gateShut) {
			s.mine.id.Store(0)
		}
	}
	return word.LoadUint32(&s.gate) == gateShut
}

// CloseUnused gives the slots back if this rank has not arrived at any collective: then no other rank needs them, even if one
// never makes the communicator.
func (s *Collective) CloseUnused() {
	for _, p := range s.persistent {
		p.CloseUnused()
	}
	if s.shut(gateUnused) {
		s.closed = true
	}
}

// Close gives the slots back, when no rank needs them any more. While a goroutine is inside, Close does not give them back;
// open tries again later.
func (s *Collective) Close() {
	for _, p := range s.persistent {
		p.Close()
	}
	s.shut(gateUnused, gateOutside)
	s.closed = true
}

// Ended publishes that the communicator has ended on this rank: because of f, or because this rank has closed it (nil,
// or an f that says so, which is no reason for the others). It is called before an arrival is taken back, so that the
// others find the reason. The first reason counts.
func (s *Collective) Ended(f *backend.Fault) {
	was := s.mine.ended.Load()
	switch {
	case s.closed || was&endedClosed != 0: // what came before was published then
	case f == nil || f.Sentinel == backend.ErrClosed:
		s.mine.ended.Store(was | endedClosed)
	case was&endedFault == 0:
		word.CompareAndSwapUint32(&s.gate, gateUnused, gateOutside) // the others need the slots, to find the reason
		s.mine.reason.set(f)
		s.mine.ended.Store(was | endedFault)
		for _, r := range s.ranks {
			s.b.head(r).news.Add(1)
		}
	}
}

// told returns why the communicator has ended on another rank. It returns nil if it has not ended there, or was only
// closed.
func (s *Collective) told() *backend.Fault {
	for r := range s.ranks {
		if o := s.of(r); o != nil && o != s.mine && o.ended.Load()&endedFault != 0 {
			f := o.reason.get()
			if s.settle(); o.id.Load() == s.id {
				return f
			}
		}
	}
	return nil
}

// news is told for frequent calls: it looks at the others only if one of them has published a reason since told
// returned nil.
func (s *Collective) news() *backend.Fault {
	now := s.b.own.news.Load()
	if now == s.looked.Load() {
		return nil
	}
	f := s.home.told()
	if f == nil {
		s.looked.Store(now)
	}
	return f
}

// stopped returns why the communicator has ended, on this rank or on another rank of the node, and ends it on this rank
// too. It returns nil if the communicator has not ended.
func (s *Collective) stopped() error {
	if f := s.b.Lost(s.b.cfg.Rank); f != nil {
		s.c.Excluded(f)
	} else if s.c.Over() == nil {
		if f := s.home.told(); f != nil {
			s.c.Break(f)
		} else if f := s.b.Lost(s.b.cfg.Rank); f != nil { // the others may have given back the slots that told
			s.c.Excluded(f)
		}
	}
	return s.c.Over()
}

// why returns the error of a call that cannot end because a rank is gone, or has taken its arrival back. That rank may
// have left because of a loss that is not known here yet.
func (s *Collective) why(rank int) error {
	err := s.stopped()
	if err == nil {
		s.c.Refresh()
		if err = s.c.Over(); err == nil {
			err = s.c.GoneFault(rank)
			s.c.Break(err)
		}
	}
	return err
}
