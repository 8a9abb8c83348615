package board

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// awaited is what a rank waits for: ranks from low to end-1, which arrive at call upto of the communicator, or at a
// synchronization inside a call. Those before seen have arrived.
type awaited struct {
	low, seen, end int
	upto           uint32
	phase          phase

	parity uint32 // of the synchronization
	key    uint64
}

// phase is why a rank waits:
//
//	phase          awaits                                  begins
//	catchingUp     all ranks, ahead calls before the next  before a call, if the rank is behind
//	calling        the ranks whose data or calls it needs  when it has arrived at the call
//	asking         all ranks, or one that has compared     when it has arrived at a call with one short result
//	               all calls and has the result            (common), if ranks share processors
//	synchronizing  all ranks, at the synchronization       inside a call that reads the others' memory
//	disputing      all ranks, at the first call that       when it has found that calls differ
//	               differs, so that all find it
//
// Each phase begins when the one before has ended. A rank that is asking and finds such a rank is calling that one (follow).
type phase uint8

const (
	catchingUp phase = iota
	calling
	asking
	synchronizing
	disputing
)

// comparison says how far a rank has compared the others' calls with its own.
type comparison struct {
	prints  [slotsDeep]backend.Fingerprint // of this rank's calls, as in its slots
	upTo    []uint32                       // by rank: its last call that has been compared
	differs bool                           // some rank has made another call than this one
	first   uint32                         // the first such call; valid if differs
}

// call compares call n of rank r, which comes after the last one that has been compared.
func (c *comparison) call(r int, n uint32, print *backend.Fingerprint) {
	if *print != c.prints[n%slotsDeep] && (!c.differs || int32(c.first-n) > 0) {
		c.differs, c.first = true, n
	}
	c.upTo[r] = n
}

// Ready implements backend.Pending: the awaited ranks have arrived, or one never will, or the communicator has ended.
// The others go on during the first look. The second one sees what the first has missed.
func (s *Collective) Ready() bool { return s.arrived() || s.halted() || s.arrived() }

// halted reports whether the awaited ranks need not arrive any more.
func (s *Collective) halted() bool {
	return s.c.Over() != nil || s.b.lost() || s.news() != nil || s.c.Gone(s.seen) && !s.checkArrival(s.seen)
}

// await begins to wait for ranks lo to hi-1 at call n, or at this rank's synchronization.
func (s *Collective) await(p phase, lo, hi int, n uint32) {
	s.phase, s.low, s.seen, s.end, s.upto = p, lo, lo, hi, n
}

// awaitAll begins to wait for all ranks.
func (s *Collective) awaitAll(p phase, n uint32) { s.await(p, 0, len(s.ranks), n) }

// arrived reports whether the awaited ranks have arrived.
func (s *Collective) arrived() bool {
	if s.phase == asking {
		s.follow()
	}
	for s.seen < s.end {
		if !s.checkArrival(s.seen) {
			return false
		}
		s.seen++
	}
	return true
}

// follow looks for a rank that has found that all have made the same call, and takes its result. Where ranks share
// processors, each runs once for a call, and finds no line of another rank's slots in its caches. So one looks for all.
func (s *Collective) follow() {
	first := s.of(0)
	if first == nil {
		return
	}
	finder := word.LoadUint64(&first.finder)
	r := uint32(finder)
	if uint32(finder>>32) != s.seq || r >= uint32(len(s.ranks)) {
		return
	}
	o := s.of(int(r))
	if o == nil || word.LoadUint64(&o.found[s.seq%dataDeep].key) != s.keyOf(s.seq) {
		return
	}
	for i := range s.compared.upTo {
		s.compared.upTo[i] = s.seq
	}
	s.await(calling, int(r), int(r)+1, s.seq)
	s.seen, s.side.from = s.end, &o.found[s.seq%dataDeep]
}

// tell publishes the result of a call of which this rank has compared all ranks' calls.
func (s *Collective) tell(result []byte) {
	f := &s.mine.found[s.seq%dataDeep]
	writes(&f.touch)
	copy(f.result[:], result)
	release(&f.key, s.keyOf(s.seq))
	release(&s.slots[0].Load().finder, uint64(s.seq)<<32|uint64(s.c.Rank()))
}

// checkArrival compares the calls that a rank has made since the last look, and reports whether it has arrived.
func (s *Collective) checkArrival(r int) bool {
	b := s.of(r)
	if b == nil {
		return false
	}
	if s.phase == synchronizing {
		return b.syncs[s.parity].key.Load() == s.key
	}
	for int32(s.upto-s.compared.upTo[r]) > 0 {
		n := s.compared.upTo[r] + 1
		p := &b.calls[n%slotsDeep]
		if word.LoadUint64(&p.key) != s.keyOf(n) {
			return false
		}
		s.compared.call(r, n, &p.print)
	}
	return true
}

// needs returns the ranks for which this one waits in a call, lo to hi-1.
func (s *Collective) needs(call *backend.Call) (lo, hi int) {
	n := len(s.ranks)
	if n == 1 || call.Form != backend.Blocking || call.Err != nil || !s.side.inSlots || s.b.cfg.Check {
		return 0, n
	}
	switch root := call.Root == s.c.Rank(); call.Coll {
	case backend.Bcast, backend.Scatter:
		if root {
			return 0, 0
		}
		return call.Root, call.Root + 1
	case backend.Reduce, backend.Gather:
		if !root {
			return 0, 0
		}
	case backend.NeighborAllgather, backend.NeighborAllgatherv, backend.NeighborAlltoall, backend.NeighborAlltoallv:
		return 0, 0 // the messages of the neighbors are enough
	}
	return 0, n
}

// wake wakes the other ranks that sleep. Where all wait for all, the last that arrives does this, for the others
// need not run before. A rank that misses another one after the exchange below is not the last. A rank that does not
// wait for all wakes the others when it has looked for those it needs.
//
// To arrive is a plain store, and the exchange makes it visible before this rank looks who sleeps. A rank that is
// about to sleep announces that, also by an exchange, before it looks who has arrived. So of two ranks at least one
// sees the other.
func (s *Collective) wake() {
	s.fresh = false
	s.exchange.Store(0)
	for r, w := range s.ranks {
		if r != s.c.Rank() {
			s.b.cfg.Wake(w)
		}
	}
}

// wait waits for the awaited ranks.
func (s *Collective) wait(b *backend.Bound) error {
	c := s.c
	if s.b.cfg.Spare {
		for range directSpin {
			if s.arrived() {
				break
			}
		}
	}
	if s.fresh && s.behind {
		s.wake()
	}
	if s.fresh && s.seen < s.end {
		s.exchange.Store(0)
		s.fresh = s.arrived() // else another rank is the last: see wake
	}
	if s.seen < s.end && !s.b.cfg.Spare { // when this rank runs again, the others have run too
		shmem.Yield()
		s.arrived()
	}
	if s.seen < s.end {
		if s.phase != synchronizing {
			c.Waits(s.call)
		}
		err := c.Await(b, s)
		if s.phase != synchronizing {
			c.Waits(nil)
		}
		if err != nil {
			return s.late(err, s.call)
		}
	}
	if s.seen < s.end {
		return s.why(s.seen)
	}
	if s.fresh {
		s.wake()
	}
	return nil
}

// directSpin is how often a rank looks for the others before it waits: about 2 µs.
const directSpin = 1500

// late ends a call whose time is up: it names the missing ranks and breaks the communicator. A rank that did not wait in the
// call before names those apart that have arrived there: they may still wait there for the others.
func (s *Collective) late(cause error, call *backend.Call) error {
	if err := s.stopped(); err != nil { // another rank was first, for instance
		return err
	}
	var missing, before []string
	s.mu.Lock()
	for r := s.seen; r < s.end; r++ {
		switch {
		case r > s.seen && s.checkArrival(r): // the first had not when this rank looked last
		case s.phase != synchronizing && s.upto == s.seq && s.compared.upTo[r] == s.seq-1:
			before = append(before, fmt.Sprint(r))
		default:
			missing = append(missing, fmt.Sprint(r))
		}
	}
	what, more := "arrived", ""
	if s.phase == synchronizing {
		what = "finished their part"
	}
	s.mu.Unlock()
	if len(missing) == 0 {
		missing = before
	} else if len(before) > 0 {
		more = ", and for ranks that had arrived at the collective before: " + strings.Join(before, ", ")
	}
	return s.timedOut(cause, call, "waited in %v for ranks that had not "+what+": "+strings.Join(missing, ", ")+more)
}

// timedOut breaks the communicator because of the error of a Bound, and adds what this rank did in the call.
func (s *Collective) timedOut(cause error, call *backend.Call, did string) error {
	err := backend.While(cause, fmt.Sprintf("rank %d "+did, s.c.Rank(), call.Fingerprint()))
	s.c.Break(err)
	return err
}

// unsound returns an awaited rank whose slots are not this communicator's any more, -1 if there is none. The line of the
// id stays in this processor's cache. That of a key may have moved to another one.
func (s *Collective) unsound() int {
	s.settle()
	for r := s.low; r < s.end; r++ {
		if s.slots[r].Load().id.Load() != s.id {
			return r
		}
	}
	return -1
}
