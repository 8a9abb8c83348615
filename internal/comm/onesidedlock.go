package comm

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Lock waits until this rank holds the lock of a rank's part.
func (w *Onesided) Lock(kind window.Kind, rank int) error {
	err := w.begin(rank)
	if err != nil {
		return w.Failed("lock", rank, err)
	}
	s := w.s
	defer s.origin.Leave()
	switch {
	case rank == backend.ProcNull:
		return nil
	case kind != window.Shared && kind != window.Exclusive:
		err = fault(backend.ErrWin, "invalid lock kind %d; want LockShared or LockExclusive", uint8(kind))
	case !s.claim(rank, 0, waiting):
		err = fault(backend.ErrWin, "this rank already holds the lock of rank %d's part, or waits for it", rank)
	default:
		err = s.core.traced(s.core.numbered(flight.Lock, rank, uint32(s.number)), func() error { return w.lock(kind, rank) })
		if err != nil {
			kind = 0
		}
		s.claim(rank, waiting, kind)
		if err == nil && s.origin.IsShut() { // the goroutine that closes the window may have come before
			_, _ = s.home().unlock(rank)
			err = errNotOpen
		}
	}
	return w.Failed("lock", rank, err)
}

// waiting stands for a lock that this rank waits for.
const waiting window.Kind = 255

// claim notes the kind of lock that this rank holds of a part, 0 for none. It returns false if this rank did not hold
// old before.
func (s *onesided) claim(rank int, old, kind window.Kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[rank] != old {
		return false
	}
	s.held[rank] = kind
	return true
}

// lock exchanges the state of a lock until this rank has the lock. A rank of another node cannot sleep on the
// word, so lock polls.
func (w *Onesided) lock(kind window.Kind, rank int) error {
	s := w.s
	if !s.parts[rank].Here() {
		w = w.begun()
	}
	var state window.LockState
	x := waiter{s, &s.origin, window.Until{Bound: w.c.bound, Comm: s.core.bc}}
	for i := 1; ; i++ {
		next, has := state.Take(kind, s.core.rank)
		was, err := w.tryLock(kind, rank, state)
		switch {
		case err == nil && was != state:
			state = was
			continue
		case err == nil && has:
			return nil
		case err == nil:
			state = next
			if err = x.expired(); err != nil {
				s.giveUp(kind, rank, state)
			}
		}
		if err != nil {
			if state == 0 {
				return backend.While(err, fmt.Sprintf("the lock of rank %d's part: that rank has not answered", rank))
			}
			return backend.While(err, fmt.Sprintf("the lock of rank %d's part: %v", rank, state))
		}
		word.Nap(min(time.Microsecond<<min(i, 10), time.Millisecond))
	}
}

// tryLock makes one step from a state of a lock, and returns what the state was. If the deadline passes before
// the answer arrives, a goroutine waits for the answer and reverses the step.
func (w *Onesided) tryLock(kind window.Kind, rank int, state window.LockState) (window.LockState, error) {
	s := w.s
	next, has := state.Take(kind, s.core.rank)
	if s.parts[rank].Here() || !w.c.bound.Limited() {
		return w.exchangeLock(rank, state, next)
	}
	var was window.LockState // valid when the transfer has ended
	t := s.begin(func(home *Onesided) (err error) {
		was, err = home.exchangeLock(rank, state, next)
		return err
	})
	if err := s.core.bc.Await(w.c.bound, t); err != nil {
		s.begin(func(home *Onesided) error {
			<-t.ended
			switch {
			case t.err != nil:
				return t.err
			case was == state && has:
				return home.change(kind, rank, next, window.LockState.Release)
			}
			return home.change(kind, rank, was, window.LockState.GiveUp)
		})
		return state, err
	}
	return was, t.err
}

// giveUp notes in the lock that this rank does not wait for it any more.
func (s *onesided) giveUp(kind window.Kind, rank int, state window.LockState) {
	give := func(home *Onesided) error { return home.change(kind, rank, state, window.LockState.GiveUp) }
	if s.parts[rank].Here() {
		_ = give(s.home())
	} else { // the target may never answer
		s.begin(give)
	}
}

// change exchanges the state of a lock until this rank has made a step from what it is.
func (w *Onesided) change(kind window.Kind, rank int, state window.LockState, step func(window.LockState, window.Kind) window.LockState) error {
	for {
		was, err := w.exchangeLock(rank, state, step(state, kind))
		if err != nil || was == state {
			return err
		}
		state = was
	}
}

// Unlock releases the lock of a rank's part.
func (w *Onesided) Unlock(rank int) error {
	err := w.begin(rank)
	if err != nil {
		return w.Failed("unlock", rank, err)
	}
	s := w.s
	defer s.origin.Leave()
	if rank == backend.ProcNull {
		return nil
	}
	held, err := s.home().unlock(rank)
	if !held {
		err = fault(backend.ErrWin, "this rank does not hold the lock of rank %d's part", rank)
	}
	return w.Failed("unlock", rank, err)
}

// home is a handle without a deadline but the job's, which must not leave a lock taken.
func (s *onesided) home() *Onesided { return &Onesided{s.core.home, s} }

// unlockAll releases the locks that this rank holds, with an error that names one. After a loss, also of this rank,
// they stay taken: what they guard may be half done.
func (w *Onesided) unlockAll() (err error) {
	if w.s.failure() != nil || errors.Is((&window.Until{Comm: w.s.core.bc}).Err(), backend.ErrPeerLost) {
		return nil
	}
	for r := range w.s.counts {
		if held, _ := w.unlock(r); held {
			err = fault(backend.ErrWin, "closed while this rank held the lock of rank %d's part", r)
		}
	}
	return err
}

// unlock releases the lock of a part, and reports whether this rank held it.
func (w *Onesided) unlock(rank int) (held bool, err error) {
	s := w.s
	for _, kind := range []window.Kind{window.Shared, window.Exclusive} {
		if s.claim(rank, kind, 0) {
			state, _ := window.LockState(0).Take(kind, s.core.rank)
			return true, w.change(kind, rank, state, window.LockState.Release)
		}
	}
	return false, nil
}

// exchangeLock sets the state of a part's lock to next if it is old, and returns what it was.
func (w *Onesided) exchangeLock(rank int, old, next window.LockState) (window.LockState, error) {
	words := exchanges.Get().(*[3]window.LockState)
	defer exchanges.Put(words)
	words[0], words[1] = old, next
	all := view.Bytes(words[:])
	err := w.access(&Access{Kind: flight.CompareAndSwap, Rank: rank, Disp: window.LockWord, In: all[:16], Out: all[16:]})
	return words[2], err
}

// exchanges are the operands of exchangeLock.
var exchanges = sync.Pool{New: func() any { return new([3]window.LockState) }}
