package board

import (
	"errors"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// mismatch waits until all ranks have arrived at the call that differs, and breaks the communicator.
func (s *Collective) mismatch(b *backend.Bound) error {
	s.awaitAll(disputing, s.compared.first)
	if err := s.wait(b); err != nil {
		return err
	}
	return s.report()
}

// report breaks the communicator because calls differ at which all ranks have arrived. Every rank finds the same
// text, because it sees the same slots.
func (s *Collective) report() error {
	if err := s.stopped(); err != nil { // another rank was first
		return err
	}
	missing, _, err := s.compare(s.compared.first)
	if err == nil {
		return s.why(max(missing, 0))
	}
	s.c.Break(err)
	return err
}

// compare returns a rank that does not stand at call n, or -1, and then the mismatch of all ranks' calls, if there is
// one. made is this rank's call. Any goroutine may call it: what it has read of a slot is of call n, or the key differs
// afterwards.
func (s *Collective) compare(n uint32) (missing int, made backend.Fingerprint, mismatch error) {
	me := s.c.Rank()
	made, ok := s.print(me, n)
	if !ok {
		return me, made, nil
	}
	var first backend.Fingerprint
	for r := range s.ranks {
		print, ok := s.print(r, n)
		switch {
		case !ok:
			return r, made, nil
		case r == 0:
			first = print
		case print != first && mismatch == nil:
			mismatch = backend.Mismatch(0, first, r, print)
		}
	}
	return -1, made, mismatch
}

// print returns the fingerprint of a rank's call n, and false if the rank does not stand there.
func (s *Collective) print(r int, n uint32) (f backend.Fingerprint, ok bool) {
	o := s.of(r)
	if o == nil {
		return f, false
	}
	p := &o.calls[n%slotsDeep]
	key := word.LoadUint64(&p.key)
	reads(&p.touch)
	f = p.print
	s.settle()
	return f, key == s.keyOf(n) && word.LoadUint64(&p.key) == key
}

// Verify compares the calls in which this rank did not wait, as far as the other ranks have arrived at them: the
// oldest first, because the calls after a mismatch differ too. It breaks the communicator if they differ. Any
// goroutine may call it.
func (s *Collective) Verify() error {
	for _, was := range s.deferred() {
		missing, made, err := s.compare(uint32(was >> 32))
		switch {
		case err != nil:
			s.c.Break(err)
			return err
		case missing < 0:
			word.CompareAndSwapUint64(&s.returned.call[uint32(was>>32)%returnedDeep], was, 0)
		case missing != s.c.Rank(): // which is about to arrive, or has taken it back
			s.c.Mixed(uint32(was), made)
		}
	}
	return nil
}

// returnedDeep is how many calls returned has: more than ahead. When a rank arrives at a call it has compared those
// that are ahead or more before it.
const returnedDeep = ahead + 1

// deferred returns the calls in which this rank did not wait, and that it may not have compared yet, in their order.
func (s *Collective) deferred() (calls []uint64) {
	for i := range s.returned.call {
		if was := word.LoadUint64(&s.returned.call[i]); was != 0 {
			calls = append(calls, was)
		}
	}
	slices.SortFunc(calls, func(a, b uint64) int { return int(int32(uint32(a>>32) - uint32(b>>32))) })
	return calls
}

// moved notes that a neighborhood call has ended on this rank. If a block had another length, the rank has broken the
// communicator before.
func (s *Collective) moved() {
	if s.enter() {
		s.mine.done.Store(s.seq)
		s.leave()
		s.wake()
	}
}

// Quiesce ends the collectives of a communicator that this rank is about to close: it waits, for at most a second,
// until all ranks have arrived at the calls in which this one did not wait, and have ended the neighborhood calls that it
// has ended. If another Quiesce of this rank has waited in vain, and this rank has made no call since, it only looks. It
// returns their mismatch.
func (s *Collective) Quiesce() error {
	if len(s.deferred()) == 0 && s.mine.done.Load() == 0 {
		return nil
	}
	limit := time.Second
	if s.b.vain.Load() {
		limit = time.Millisecond
	}
	if s.c.Await(&backend.Bound{Timeout: limit}, (*quiescing)(s)) != nil { // the others find what this one does not
		s.b.vain.Store(true)
	}
	_ = s.Verify()
	if err := s.stopped(); errors.Is(err, backend.ErrMismatch) { // another rank may have found it
		return err
	}
	return nil
}

// quiescing is ready when Quiesce need not wait.
type quiescing Collective

// Ready implements backend.Pending.
func (p *quiescing) Ready() bool {
	s := (*Collective)(p)
	waits := false
	for _, was := range s.deferred() {
		missing, _, _ := s.compare(uint32(was >> 32))
		waits = waits || missing >= 0 && missing != s.c.Rank() && !s.c.Gone(missing)
	}
	done := s.mine.done.Load()
	for r := range s.ranks {
		o := s.of(r)
		waits = waits || done != 0 && (o == nil || int32(done-o.done.Load()) > 0) && !s.c.Gone(r)
	}
	return !waits || s.c.Over() != nil || s.news() != nil
}
