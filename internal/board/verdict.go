package board

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// mismatch waits until all ranks have arrived at the call that differs, and breaks the communicator.
func (s *Collective) mismatch(b *backend.Bound) error {
	here := s.differ == s.seq // in this call, not in an earlier one
	s.awaitAll(s.differ)
	if err := s.wait(b); err != nil {
		if here {
			s.retract()
		}
		return err
	}
	err := s.report()
	if here && s.call.Err != nil && errors.Is(err, backend.ErrMismatch) {
		return s.call.Err
	}
	return err
}

// report breaks the communicator because calls differ at which all ranks have arrived. Every rank finds the same
// text, because it sees the same slots.
func (s *Collective) report() error {
	c := s.c
	c.Refresh()
	if err := c.Over(); err != nil && !errors.Is(err, backend.ErrMismatch) {
		return err // the slots compared may be of later calls, or of later communicators
	}
	err := s.compare(s.differ)
	if err == nil {
		return &backend.Fault{Sentinel: backend.ErrInternal, Text: "the arrival slots changed while they were compared"}
	}
	c.Break(err)
	s.Reported.Store(true)
	return err
}

// compare returns the mismatch at call n, at which all ranks have arrived, or nil.
func (s *Collective) compare(n uint32) error {
	var first backend.Fingerprint
	for r := range s.ranks {
		o := s.find(r)
		if o == nil { // all ranks have closed the communicator
			return nil
		}
		switch made := o.calls[n%slotsDeep].print; {
		case r == 0:
			first = made
		case made != first:
			return backend.Mismatch(0, first, r, made)
		}
	}
	return nil
}

// Verify compares the calls in which this rank did not wait, as far as the other ranks have arrived at them: the
// oldest first, because the calls after a mismatch differ too. It breaks the communicator if they differ. Any
// goroutine may call it.
func (s *Collective) Verify() error {
	oldest, _ := s.oldest()
	for n := oldest; n-oldest < slotsDeep; n++ {
		was := atomic.LoadUint64(&s.returned.call[n%slotsDeep])
		if was == 0 || uint32(was>>32) != n {
			continue
		}
		made := s.mine.calls[n%slotsDeep].print
		missing, err := s.verdict(n)
		s.exchange.Store(0) // what verdict read was read before the key that compared reads
		switch {
		case s.c.Over() != nil || s.b.lost(): // the slots may be those of later communicators
			return nil
		case s.compared(n): // the slots may be those of later calls
		case err != nil:
			s.c.Break(err)
			return err
		case missing >= 0:
			s.c.Mixed(uint32(was), made)
			continue
		}
		atomic.CompareAndSwapUint64(&s.returned.call[n%slotsDeep], was, 0)
	}
	return nil
}

// oldest returns the number of the oldest call in returned, and false if there are none.
func (s *Collective) oldest() (oldest uint32, found bool) {
	for i := range s.returned.call {
		was := atomic.LoadUint64(&s.returned.call[i])
		if n := uint32(was >> 32); was != 0 && (!found || int32(n-oldest) < 0) {
			found, oldest = true, n
		}
	}
	return oldest, found
}

// compared reports whether this rank has arrived at call n+ahead, before which it has compared call n. Until then
// no rank uses its slot of call n again.
func (s *Collective) compared(n uint32) bool {
	key := atomic.LoadUint64(&s.mine.calls[(n+ahead)%slotsDeep].key)
	return key>>32 == s.keyOf(n)>>32 && int32(uint32(key)-n) >= ahead
}

// verdict returns a rank that has not arrived at call n, or -1 and the mismatch of all ranks' calls.
func (s *Collective) verdict(n uint32) (missing int, err error) {
	for r := range s.ranks {
		o := s.find(r)
		if o == nil {
			return r, nil
		}
		switch key := atomic.LoadUint64(&o.calls[n%slotsDeep].key); {
		case key>>32 == s.keyOf(n)>>32 && int32(uint32(key)-n) > 0: // later: compared before that
			return -1, nil
		case key != s.keyOf(n):
			return r, nil
		}
	}
	return -1, s.compare(n)
}

// Quiesce ends the collectives of a communicator that this rank is about to close: it waits, for at most a second,
// until all ranks have arrived at the calls in which this one did not wait. It returns their mismatch.
func (s *Collective) Quiesce() error {
	if _, found := s.oldest(); s.Reported.Load() || !found {
		return nil
	}
	_ = s.c.Await(&backend.Bound{Timeout: time.Second}, (*quiescing)(s)) // the others find what this one does not
	err := s.Verify()
	if err == nil {
		err = s.c.Over() // another rank may have found it
	}
	if s.Reported.Load() || !errors.Is(err, backend.ErrMismatch) {
		return nil
	}
	return err
}

// quiescing is ready when Quiesce need not wait.
type quiescing Collective

// Ready implements backend.Pending.
func (p *quiescing) Ready() bool {
	s := (*Collective)(p)
	for i := range s.returned.call {
		if was := atomic.LoadUint64(&s.returned.call[i]); was != 0 {
			if missing, _ := s.verdict(uint32(was >> 32)); missing >= 0 && !s.c.Gone(missing) {
				return s.c.Over() != nil
			}
		}
	}
	return true
}
