package board

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
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
	id    uint64     // the communicator's + 1, and in the upper half which of its persistent operations, from 1
	mu    sync.Mutex // guards index and used, and everything while there are operations
	index int        // of the own slots; -1: given back
	used  bool       // this rank has arrived at a collective
	ranks []int      // of the members, on the node
	mine  *slots     // own
	slots []*slots   // by rank; nil until found

	seq, syncSeq uint32
	call         *backend.Call
	side         peers         // access to the other ranks' buffers
	exchange     atomic.Uint32 // see wake

	prints  [slotsDeep]backend.Fingerprint // of this rank's calls, as in its slots
	passed  []uint32                       // by rank: its last call that has been compared
	behind  bool                           // some of those are before seq
	fresh   bool                           // this rank has arrived, and not looked since who sleeps
	differs bool                           // the calls of some ranks at call differ
	differ  uint32

	// This rank waits for the ranks from seen to end-1. They must arrive at call upto, or at a synchronization.
	seen, end int
	upto      uint32
	syncing   bool
	parity    uint32 // of the synchronization
	key       uint64

	// Reported says that an operation has returned why the communicator is broken, so that Quiesce need not.
	Reported atomic.Bool

	operations
	persistent []*Collective // the slots of persistent operations

	// Calls in which this rank did not wait: number<<32 | Call.Seq, 0 for none; see Verify.
	returned aligned
}

// aligned is aligned for atomic operations on 64 bits where pointers have 32, too.
type aligned struct {
	_    [0]atomic.Uint64
	call [slotsDeep]uint64
}

// Ready implements backend.Pending: the awaited ranks have arrived, or one never will, or this rank has
// closed the communicator.
func (s *Collective) Ready() bool {
	return s.arrived() || s.c.Over() != nil || s.c.Gone(s.seen) && !s.here(s.seen)
}

// await begins to wait for ranks lo to hi-1 at call n.
func (s *Collective) await(lo, hi int, n uint32) { s.seen, s.end, s.upto = lo, hi, n }

// awaitAll begins to wait for all ranks at call n.
func (s *Collective) awaitAll(n uint32) { s.await(0, len(s.ranks), n) }

// arrived reports whether the awaited ranks have arrived.
func (s *Collective) arrived() bool {
	for s.seen < s.end {
		if !s.here(s.seen) {
			return false
		}
		s.seen++
	}
	return true
}

// here reports whether a rank has arrived. It compares the rank's calls up to there.
func (s *Collective) here(r int) bool {
	b := s.slots[r]
	if b == nil {
		if b = s.find(r); b == nil {
			return false
		}
		s.slots[r] = b
	}
	if s.syncing {
		return b.syncs[s.parity].key.Load() == s.key
	}
	for int32(s.upto-s.passed[r]) > 0 {
		n := s.passed[r] + 1
		p := &b.calls[n%slotsDeep]
		if atomic.LoadUint64(&p.key) != s.keyOf(n) {
			return false
		}
		if p.print != s.prints[n%slotsDeep] && (!s.differs || int32(s.differ-n) > 0) {
			s.differs, s.differ = true, n
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

// find looks for another rank's slots of this communicator; nil if there are none yet.
func (s *Collective) find(r int) *slots {
	n := slotsFirst + min(s.b.at(s.ranks[r], 0).more.Load(), slotsMost-slotsFirst)
	for i := range int(n) {
		if b := s.b.at(s.ranks[r], i); b.id.Load() == s.id {
			return b
		}
	}
	return nil
}

// wake wakes the other ranks that sleep. Where all wait for all, the last that arrives does this, for the others
// need not run before. A rank that does not wait for all does it when it has looked for those it needs.
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
		return s.gone(s.seen)
	}
	if s.fresh {
		s.wake()
	}
	return nil
}

// gone returns why a call ends for which a rank is gone. That rank may have published the reason before, or may
// have left because of a loss that is not known here yet.
func (s *Collective) gone(rank int) error {
	s.c.Refresh()
	err := s.c.Over()
	if err == nil {
		err = s.c.GoneFault(rank)
		s.c.Break(err)
	}
	return err
}

// retract takes back this rank's arrival at a call that has failed. The caller may reuse its
// buffers, so a rank that still reads them must not find this one arrived and complete. The others
// know the reason or will receive the notice of the closing. Once all have closed the communicator,
// the slots and their keys may belong to another one.
func (s *Collective) retract() {
	if s.syncing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	} else {
		atomic.CompareAndSwapUint64(&s.slot(s.mine).key, s.keyOf(s.seq), 0)
	}
}

// late ends a call whose time is up: it names the missing ranks and breaks the communicator.
func (s *Collective) late(cause error, call *backend.Call) error {
	c := s.c
	c.Refresh()
	if err := c.Over(); err != nil { // another rank was first, for instance
		return err
	}
	var missing []string
	s.mu.Lock()
	for r := s.seen; r < s.end; r++ {
		if !s.here(r) {
			missing = append(missing, fmt.Sprint(r))
		}
	}
	s.mu.Unlock()
	return s.timedOut(cause, call, "waited in %v for ranks that had not arrived: "+strings.Join(missing, ", "))
}

// timedOut breaks the communicator because of the error of a Bound, and adds what this rank did in the call.
func (s *Collective) timedOut(cause error, call *backend.Call, did string) error {
	err := backend.While(cause, fmt.Sprintf("rank %d "+did, s.c.Rank(), call.Fingerprint()))
	s.c.Break(err)
	return err
}

// text is a fault's text without its sentinel.
func text(err error) string {
	if f, ok := err.(*backend.Fault); ok {
		return f.Text
	}
	return err.Error()
}

// Run makes a call, as backend.Collectives says.
func (s *Collective) Run(b *backend.Bound, call *backend.Call) (bool, error) {
	c := s.c
	if s.count.Load() > 0 {
		if err := s.drain(b, call); err != nil {
			return true, err
		}
	}
	if s.seq == 0 {
		s.mu.Lock()
		s.used = true
		open := s.index >= 0
		s.mu.Unlock()
		if !open {
			return true, errClosed
		}
	}
	s.call, s.syncing = call, false
	if s.behind {
		s.awaitAll(s.seq + 1 - ahead)
		if err := s.wait(b); err != nil {
			return true, err
		}
	}
	if !s.differs {
		s.arrive(call)
		if err := s.wait(b); err != nil {
			s.retract()
			return true, err
		}
	}
	if s.differs {
		return true, s.mismatch(b)
	}
	if call.Err != nil {
		return true, call.Err
	}
	done, err := s.side.complete(b, call)
	// The others do not wait for a rank that was declared lost. If this rank was, it may have read
	// the data of later calls.
	lost := s.b.lost()
	if lost {
		c.Refresh()
	}
	// If another goroutine has closed the communicator, the others' slots may have belonged to later ones.
	if over := c.Over(); lost || errors.Is(over, backend.ErrClosed) {
		return true, over
	}
	return done, err
}

// arrive writes this rank's arrival at its next call, and begins to wait for those it needs.
func (s *Collective) arrive(call *backend.Call) {
	s.seq++
	p := s.slot(s.mine)
	s.side.publish(p, call)
	s.passed[s.c.Rank()] = s.seq
	lo, hi := s.needs(call)
	s.await(lo, hi, s.seq)
	if s.behind = hi-lo < len(s.ranks); s.behind {
		shmem.ReleaseUint64(&s.returned.call[s.seq%slotsDeep], uint64(s.seq)<<32|uint64(call.Seq))
	}
	shmem.ReleaseUint64(&p.key, s.keyOf(s.seq))
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
	c := s.c
	s.syncSeq++
	s.syncing, s.parity, s.key = true, s.syncSeq&1, s.keyOf(s.syncSeq)
	s.mu.Lock()
	if s.index < 0 { // all have closed the communicator; the slots may belong to another one
		s.mu.Unlock()
		return errClosed
	}
	m := &s.mine.syncs[s.parity]
	m.work, m.workLen = shmem.Addr(work), uint64(len(work))
	m.code, m.bytes = uint32(backend.Code(bad)), 0
	if bad != nil {
		m.bytes = uint32(copy(m.text[:], text(bad)))
	}
	m.key.Store(s.key)
	s.mu.Unlock()
	s.fresh = true
	s.awaitAll(s.seq)
	if err := s.wait(b); err != nil {
		s.retract()
		return err
	}
	for _, o := range s.slots {
		m := &o.syncs[s.parity]
		if code := m.code; code != 0 {
			f := &backend.Fault{Sentinel: sentinel(code), Text: string(m.text[:min(int(m.bytes), len(m.text))])}
			c.BreakHere(f)
			return f
		}
	}
	return nil
}

// errClosed is the error of an operation that was in progress when this rank closed the communicator.
var errClosed error = &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}

// sentinel returns the sentinel of a code that another rank wrote. It is never nil, whatever the code.
func sentinel(code uint32) error {
	if code == 0 || code > 0xff {
		return backend.ErrInternal
	}
	return backend.Sentinel(uint8(code))
}

// directSpin is how often a rank looks for the others before it waits: about 2 µs.
const directSpin = 1500
