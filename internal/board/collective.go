package board

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/direct"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Collective makes the collectives of a communicator: the blocking ones, one at a time, and short nonblocking
// ones (Op), of which several may be under way. A persistent one has its own Collective.
//
// A rank arrives at a call by writing its fingerprint, and its data if they are few, into its slot. It then
// waits for the ranks whose data it needs, and compares their fingerprints with its own. A rank that needs no
// data does not wait. It compares the others' fingerprints when it arrives at a later call (see ahead). Until
// then Verify does so, once they have arrived. A rank arrives at a call when it has completed the one before.
type Collective struct {
	c     Comm
	b     *Board
	id    uint64                  // the communicator's + 1, and in the upper half which of its persistent operations, from 1
	home  *Collective             // of the communicator; of a persistent operation that of its communicator
	mu    word.Mutex              // guards everything while there are operations
	gate  uint32                  // of the own slots: see enter
	ranks []int                   // of the members, on the node
	mine  *slots                  // own
	slots []atomic.Pointer[slots] // by rank; nil until found

	closed bool          // the slots are not needed any more; the engine's lock guards it
	looked atomic.Uint32 // the head.news for which no other rank had published why it has ended

	seq, syncSeq uint32
	call         *backend.Call
	side         peers       // access to the other ranks' buffers
	exchange     word.Uint32 // see wake

	prints         [slotsDeep]backend.Fingerprint // of this rank's calls, as in its slots
	passed         []uint32                       // by rank: its last call that has been compared
	behind         bool                           // some of those are before seq
	fresh          bool                           // this rank has arrived, and not looked since who sleeps
	differs        bool                           // some rank has made another call than this one
	firstDiffering uint32                         // the first such call; valid if differs

	// This rank waits for the ranks from low to end-1; those before seen have arrived. They must arrive at call
	// upto, or at a synchronization.
	low, seen, end int
	upto           uint32
	syncing        bool
	parity         uint32 // of the synchronization
	key            uint64

	operations
	persistent []*Collective // the slots of persistent operations

	index    int         // of the own slots
	areas    []rankAreas // by rank
	reserved int         // where the own next area begins

	// The last calls, if this rank did not wait in them: number<<32 | Call.Seq, 0 for the others; see Verify.
	returned aligned
}

// aligned is aligned for atomic operations on 64 bits where pointers have 32, too.
type aligned struct {
	_    [0]word.Uint64
	call [returnedDeep]uint64
}

// Ready implements backend.Pending: the awaited ranks have arrived, or one never will, or the communicator has ended.
// What one look misses because the others go on meanwhile, the last one sees.
func (s *Collective) Ready() bool { return s.arrived() || s.halted() || s.arrived() }

// halted reports whether the awaited ranks need not arrive any more.
func (s *Collective) halted() bool {
	return s.c.Over() != nil || s.b.lost() || s.news() != nil || s.c.Gone(s.seen) && !s.checkArrival(s.seen)
}

// await begins to wait for ranks lo to hi-1 at call n.
func (s *Collective) await(lo, hi int, n uint32) {
	s.low, s.seen, s.end, s.upto = lo, lo, hi, n
}

// awaitAll begins to wait for all ranks at call n.
func (s *Collective) awaitAll(n uint32) { s.await(0, len(s.ranks), n) }

// arrived reports whether the awaited ranks have arrived.
func (s *Collective) arrived() bool {
	for s.seen < s.end {
		if !s.checkArrival(s.seen) {
			return false
		}
		s.seen++
	}
	return true
}

// checkArrival compares the calls that a rank has made since the last look, and reports whether it has arrived.
func (s *Collective) checkArrival(r int) bool {
	b := s.of(r)
	if b == nil {
		return false
	}
	if s.syncing {
		return b.syncs[s.parity].key.Load() == s.key
	}
	for int32(s.upto-s.passed[r]) > 0 {
		n := s.passed[r] + 1
		p := &b.calls[n%slotsDeep]
		if word.LoadUint64(&p.key) != s.keyOf(n) {
			return false
		}
		if p.print != s.prints[n%slotsDeep] && (!s.differs || int32(s.firstDiffering-n) > 0) {
			s.differs, s.firstDiffering = true, n
		}
		s.passed[r] = n
	}
	return true
}

// keyOf is the key of a call, or of a synchronization.
func (s *Collective) keyOf(seq uint32) uint64 { return s.id<<32 | uint64(seq) }

// slot returns a rank's slot of this call.
func (s *Collective) slot(o *slots) *callSlot { return &o.calls[s.seq%slotsDeep] }

// data returns where a rank's data of this call are if they do not fit into the slot.
func (s *Collective) data(o *slots) []byte { return o.data[s.seq%dataDeep][:] }

// rankAreas are a rank's areas for this communicator, as far as they are known.
type rankAreas struct {
	index uint64 // of the rank's slots
	mem   []byte // nil: not known
}

// area returns where a rank's n bytes of this call are if they do not fit beside the slot either. If the rank's slots are
// not this communicator's any more, their number of an area may be anything, and what is read does not count (see unsound):
// then it is the own area, which is allocated.
func (s *Collective) area(r, n int) []byte {
	o, a := s.slots[r].Load(), &s.areas[r]
	facts := &s.slot(o).facts
	if i := facts[factArea]; a.mem == nil || a.index != i {
		if s.settle(); o.id.Load() != s.id {
			a = &s.areas[s.c.Rank()]
		} else {
			off, room := s.b.areas(s.ranks[r], int(i))
			*a = rankAreas{i, shmem.Slice[byte](s.b.cfg.Segment, off, room)}
		}
	}
	return a.mem[min(facts[factOffset], uint64(len(a.mem)-n)):][:n]
}

// reserve returns where this rank's area for n bytes of this call begins: after that of the call before. The lines that a
// rank overwrites have then left the first cache of the cores that have read them (docs/adr/0041).
func (s *Collective) reserve(n int) (off uint64) {
	if s.reserved+n > len(s.areas[s.c.Rank()].mem) {
		s.reserved = 0
	}
	off = uint64(s.reserved)
	s.reserved += (n + line - 1) &^ (line - 1)
	return off
}

// allocate allocates this rank's areas if a call needs them.
func (s *Collective) allocate(call *backend.Call) error {
	me := s.c.Rank()
	if n := len(s.ranks); s.areas[me].mem != nil || call.Err != nil || direct.FitsSlot(call, n, slotData) || !direct.FitsSlot(call, n, s.b.area) {
		return nil
	}
	off, n := s.b.areas(s.b.cfg.Rank, s.index)
	if err := s.b.cfg.Segment.Allocate(off, n); err != nil {
		return &backend.Fault{Sentinel: backend.ErrAlloc, Text: "data of a collective: " + err.Error()}
	}
	s.areas[me] = rankAreas{uint64(s.index), shmem.Slice[byte](s.b.cfg.Segment, off, n)}
	return nil
}

// of returns a rank's slots of this communicator; nil if there are none yet.
func (s *Collective) of(r int) *slots {
	o := s.slots[r].Load()
	if o == nil {
		o = s.find(r)
	}
	return o
}

func (s *Collective) find(r int) *slots {
	n := slotsFirst + min(s.b.head(s.ranks[r]).more.Load(), slotsMost-slotsFirst)
	for i := range int(n) {
		if o := s.b.at(s.ranks[r], i); o.id.Load() == s.id {
			s.slots[r].Store(o)
			return o
		}
	}
	return nil
}

// stands reports whether a rank's arrival at this call still stands: what was read of it before is of this call.
func (s *Collective) stands(r int) bool {
	s.settle()
	return word.LoadUint64(&s.slot(s.slots[r].Load()).key) == s.keyOf(s.seq)
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

// settle keeps what was loaded and stored before from what is after. amd64 keeps loads in order, and stores.
func (s *Collective) settle() {
	if runtime.GOARCH != "amd64" {
		s.exchange.Store(0)
		s.exchange.Load()
	}
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
	if s.seen < s.end {
		if !s.syncing {
			c.Waits(s.call)
		}
		err := c.Await(b, s)
		if !s.syncing {
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

// retract takes back this rank's arrival at a call that has failed. The caller may reuse its buffers, so a rank that
// still reads them must not find this one arrived and complete. It finds the reason, which is published by now.
func (s *Collective) retract() {
	word.CompareAndSwapUint64(&s.slot(s.mine).key, s.keyOf(s.seq), 0)
	if s.syncing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	}
}

// late ends a call whose time is up: it names the missing ranks and breaks the communicator.
func (s *Collective) late(cause error, call *backend.Call) error {
	if err := s.stopped(); err != nil { // another rank was first, for instance
		return err
	}
	var missing []string
	s.mu.Lock()
	for r := s.seen; r < s.end; r++ {
		if r == s.seen || !s.checkArrival(r) { // the first had not when this rank looked last
			missing = append(missing, fmt.Sprint(r))
		}
	}
	what := "arrived"
	if s.syncing {
		what = "finished their part"
	}
	s.mu.Unlock()
	return s.timedOut(cause, call, "waited in %v for ranks that had not "+what+": "+strings.Join(missing, ", "))
}

// timedOut breaks the communicator because of the error of a Bound, and adds what this rank did in the call.
func (s *Collective) timedOut(cause error, call *backend.Call, did string) error {
	err := backend.While(cause, fmt.Sprintf("rank %d "+did, s.c.Rank(), call.Fingerprint()))
	s.c.Break(err)
	return err
}

// ErrEnded is the error of a call that does not begin, because the communicator has ended on another rank. It has now
// on this one too.
var ErrEnded error = &backend.Fault{Sentinel: backend.ErrBroken, Text: "the communicator has ended on another rank"}

// Run makes a call, as backend.Collectives says.
func (s *Collective) Run(b *backend.Bound, call *backend.Call) (bool, error) {
	if !s.enter() {
		return true, errClosed
	}
	done, err := s.run(b, call)
	s.leave()
	return done, err
}

func (s *Collective) run(b *backend.Bound, call *backend.Call) (bool, error) {
	if s.count.Load() > 0 {
		if err := s.drain(b, call); err != nil {
			return true, err
		}
	}
	if s.news() != nil {
		_ = s.stopped()
		return true, ErrEnded
	}
	s.call, s.syncing = call, false
	if s.behind {
		s.awaitAll(s.seq + 1 - ahead)
		if err := s.wait(b); err != nil {
			return true, err
		}
	}
	if s.differs {
		return true, s.mismatch(b)
	}
	if call.Type != nil && call.Count*call.Type.Size*len(s.ranks) > slotData {
		if err := s.allocate(call); err != nil {
			if over := s.c.Over(); over != nil { // nothing is allocated any more once this rank has left
				return true, over
			}
			s.c.Break(err)
			return true, err
		}
	}
	s.arrive(call)
	done, err := s.meet(b, call)
	if err != nil && err != call.Err { // with which the communicator has ended
		s.retract()
		if call.Err != nil && errors.Is(err, backend.ErrMismatch) { // the others' error, which this call is the reason for
			err = call.Err
		}
	}
	return done, err
}

// meet makes a call at which this rank has arrived.
func (s *Collective) meet(b *backend.Bound, call *backend.Call) (bool, error) {
	if err := s.wait(b); err != nil {
		return true, err
	}
	if s.differs {
		return true, s.mismatch(b)
	}
	if call.Err != nil {
		return true, call.Err
	}
	done, err := s.side.complete(b, call)
	switch {
	case err == errUnsound:
		return true, s.why(max(s.unsound(), 0))
	case err == nil && s.b.lost(): // the others do not wait for this rank
		return true, s.stopped()
	}
	return done, err
}

// arrive writes this rank's arrival at its next call, and begins to wait for those it needs.
func (s *Collective) arrive(call *backend.Call) {
	if s.b.vain.Load() {
		s.b.vain.Store(false)
	}
	s.seq++
	p := s.slot(s.mine)
	s.side.publish(p, call)
	s.passed[s.c.Rank()] = s.seq
	lo, hi := s.needs(call)
	s.await(lo, hi, s.seq)
	deferred := uint64(0)
	if s.behind = hi-lo < len(s.ranks); s.behind {
		deferred = uint64(s.seq)<<32 | uint64(call.Seq)
	}
	if was := &s.returned.call[s.seq%returnedDeep]; deferred != 0 || word.LoadUint64(was) != 0 {
		release(was, deferred)
	}
	release(&p.key, s.keyOf(s.seq))
	if !s.behind { // the next slot's line comes meanwhile; while no rank waits for it, it stays
		release(&s.mine.calls[(s.seq+1)%slotsDeep].key, 0)
	}
	s.fresh = true
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

// sync is a barrier inside a collective. It also publishes where this rank's shared work is, and an
// error if this rank found one.
func (s *Collective) sync(b *backend.Bound, bad error, work []byte) error {
	s.syncSeq++
	s.syncing, s.parity, s.key = true, s.syncSeq&1, s.keyOf(s.syncSeq)
	m := &s.mine.syncs[s.parity]
	m.work, m.workLen = shmem.Addr(work), uint64(len(work))
	if m.reason.bytes = 0; bad != nil {
		m.reason.set(backend.AsFault(bad))
	}
	m.key.Store(s.key)
	s.fresh = true
	s.awaitAll(s.seq)
	if err := s.wait(b); err != nil {
		return err
	}
	for r := range s.slots {
		m := &s.slots[r].Load().syncs[s.parity]
		var f *backend.Fault
		if m.reason.bytes != 0 {
			f = m.reason.get()
		}
		if s.settle(); m.key.Load() != s.key {
			return s.why(r)
		}
		if f != nil {
			s.c.BreakHere(f)
			return f
		}
	}
	return nil
}

// errClosed is the error of an operation that was in progress when this rank closed the communicator.
var errClosed error = &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}

// directSpin is how often a rank looks for the others before it waits: about 2 µs.
const directSpin = 1500
