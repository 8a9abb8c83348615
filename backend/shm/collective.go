package shm

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// collective is the state of a communicator's native collectives, of which one runs at a time.
//
// A rank arrives at a call by writing its fingerprint, and its data if they are few, into its slot.
// It then waits until all ranks have arrived. A rank arrives at call s+2 only after all have
// arrived at s+1, and they do so only when they are done with s. Two alternating slots are
// therefore enough, and a call whose data were all in the slots needs no second synchronisation.
type collective struct {
	c       *comm
	mine    *slots
	key     uint64
	syncing bool // in sync: wait for the sync slots, not the call slots
	parity  uint32
	seen    int // ranks below have arrived
	call    *backend.Call
	active  bool  // waiting for arrivals; guarded by the engine's lock
	side    peers // access to the other ranks' buffers
}

func (s *collective) init(c *comm) {
	s.c, s.mine, s.side.s = c, c.slots[c.rank], s
	s.side.mem.Block = fetchBlock
}

// Ready implements backend.Pending: all ranks have arrived, or one never will, or this rank has
// closed the communicator.
func (s *collective) Ready() bool {
	c := s.c
	for s.seen < len(c.World) {
		if !s.here(s.seen) {
			return c.brk.Load() != nil || c.end.Load() != nil || c.closed.Load() || c.isGone(s.seen) && !s.here(s.seen)
		}
		s.seen++
	}
	return true
}

// here reports whether a rank has arrived.
func (s *collective) here(r int) bool {
	b := s.c.slots[r]
	if b == nil {
		if b = s.c.find(r); b == nil {
			return false
		}
		s.c.slots[r] = b
	}
	if s.syncing {
		return b.syncs[s.parity].key.Load() == s.key
	}
	return b.calls[s.parity].key.Load() == s.key
}

// find looks for another rank's slots of this communicator; nil if there are none yet.
func (c *comm) find(r int) *slots {
	for i := range c.e.lay.slots {
		if b := c.e.slotsOf(c.World[r], i); b.id.Load() == c.id+1 {
			return b
		}
	}
	return nil
}

// arrive publishes this rank's arrival, which is written already, and waits for the others.
func (s *collective) arrive(b *backend.Bound) error {
	c := s.c
	for r, w := range c.World {
		if r != c.rank {
			c.e.ring(w)
		}
	}
	s.seen = 0
	if c.e.spare {
		for range directSpin {
			if s.Ready() {
				break
			}
		}
	}
	if s.seen < len(c.World) {
		s.watchMixed()
		err := c.Await(b, s)
		s.unwatch()
		if err != nil {
			err = s.late(err)
			s.retract()
			return err
		}
	}
	if s.seen == len(c.World) {
		return nil
	}
	defer s.retract()
	// A rank that is gone may have published the reason before, or may have left because of a loss
	// that is not known here yet.
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f
	}
	if f := c.brk.Load(); f != nil {
		return f
	}
	if c.closed.Load() { // Close has told the others that this rank is gone
		return closedFault()
	}
	err := c.goneFault(s.seen)
	c.Break(err)
	return err
}

// retract takes back this rank's arrival at a call that has failed. The caller may reuse its
// buffers, so a rank that still reads them must not find this one arrived and complete. The others
// know the reason or will receive the notice of the closing. Once all have closed the communicator,
// the slots and their keys may belong to another one.
func (s *collective) retract() {
	if s.syncing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	} else {
		s.mine.calls[s.parity].key.CompareAndSwap(s.key, 0)
	}
}

// late ends a collective whose time is up: it names the missing ranks and breaks the communicator.
func (s *collective) late(cause error) error {
	c := s.c
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f
	}
	if f := c.brk.Load(); f != nil { // another rank was first
		return f
	}
	if c.closed.Load() {
		return closedFault()
	}
	var missing []string
	for r := range c.World {
		if !s.here(r) {
			missing = append(missing, fmt.Sprint(r))
		}
	}
	f := &backend.Fault{Sentinel: backend.Sentinel(backend.Code(cause)),
		Text: fmt.Sprintf("%v: rank %d waited in %v for ranks that had not arrived: %s",
			text(cause), c.rank, s.call.Fingerprint(), strings.Join(missing, ", "))}
	c.Break(f)
	return f
}

// text is a fault's text without its sentinel.
func text(err error) string {
	if f, ok := err.(*backend.Fault); ok {
		return f.Text
	}
	return err.Error()
}

// Collective implements backend.Native.
func (c *comm) Collective(b *backend.Bound, call *backend.Call) (bool, error) {
	if err := c.usable(); err != nil {
		return true, err
	}
	if c.parent != nil {
		return true, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "a control communicator has no collectives"}
	}
	s := &c.coll
	c.seq++
	s.call = call
	s.syncing, s.parity = false, c.seq&1
	s.key = uint64(c.id+1)<<32 | uint64(c.seq)
	p := &s.mine.calls[s.parity]
	words := call.Fingerprint().Words()
	p.words = words
	s.side.publish(p, call)
	p.key.Store(s.key)
	err := s.arrive(b)
	if err != nil {
		return true, err
	}
	for r, o := range c.slots {
		if r != c.rank && o.calls[s.parity].words != words {
			return true, s.mismatch()
		}
	}
	if call.Err != nil {
		return true, call.Err
	}
	done, err := s.side.complete(b, call)
	// The others do not wait for a rank that was declared lost. If this rank was, it may have read
	// the data of later calls.
	if c.e.self.lost.Load() != 0 {
		c.e.refresh()
		return true, c.end.Load()
	}
	if c.closed.Load() { // by another goroutine: the others' slots may have belonged to later communicators
		return true, closedFault()
	}
	return done, err
}

// mismatch reports which ranks called what. The report is the same on every rank, because every
// rank sees all slots.
func (s *collective) mismatch() error {
	c := s.c
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f // the slots compared may be of later calls
	}
	if f := c.brk.Load(); f != nil && f.Sentinel != backend.ErrMismatch {
		return brokenBy(f) // the others gave up the call before this one
	}
	if c.closed.Load() {
		return closedFault() // the slots compared may be of later communicators
	}
	first := backend.FromWords(c.slots[0].calls[s.parity].words)
	for r, o := range c.slots {
		if fp := backend.FromWords(o.calls[s.parity].words); fp != first {
			f := backend.Mismatch(0, first, r, fp).(*backend.Fault)
			c.e.mu.Lock()
			c.broken(f)
			c.e.unlock()
			if s.call.Err != nil {
				return s.call.Err
			}
			return f
		}
	}
	return &backend.Fault{Sentinel: backend.ErrInternal, Text: "the arrival slots changed while they were compared"}
}

// watchMixed starts to look for messages that checkMixed understands, also among those that have
// arrived.
func (s *collective) watchMixed() {
	if s.syncing {
		return
	}
	e := s.c.e
	e.mu.Lock()
	s.active = true
	tag := backend.CheckTag(s.call.Seq)
	if n := e.arrived.FindArrived(match.Env{Ctx: s.c.id, Source: backend.AnySource, Tag: int32(tag)}); n != nil {
		e.checkMixed(n.Env.Ctx, n.Env.Tag, n.Owner.(*msg).buf)
	}
	e.mu.Unlock()
}

func (s *collective) unwatch() {
	s.c.e.mu.Lock()
	s.active = false
	s.c.e.unlock()
}

// checkMixed looks at an unexpected message of the layers above. If it begins a collective over
// messages while this rank is in a native one with the same number, the calls do not match. The
// lock is held.
func (e *engine) checkMixed(ctx uint32, tag int32, payload []byte) {
	c := e.comms[ctx]
	if c == nil {
		return
	}
	if !c.coll.active || int(tag) != backend.CheckTag(c.coll.call.Seq) {
		return
	}
	seen, ok := backend.DecodeSeen(payload, len(c.World))
	if !ok {
		return
	}
	seen.Merge(backend.See(c.rank, c.coll.call.Fingerprint()))
	if f, ok := seen.Err().(*backend.Fault); ok {
		c.breakAll(f)
	}
}

// sync is a barrier inside a collective. It also publishes where this rank's shared work is, and an
// error if this rank found one.
func (s *collective) sync(b *backend.Bound, bad error, work []byte) error {
	c := s.c
	c.syncSeq++
	s.syncing, s.parity = true, c.syncSeq&1
	s.key = uint64(c.id+1)<<32 | uint64(c.syncSeq)
	c.e.mu.Lock()
	if c.slotIndex < 0 { // all have closed the communicator; the slots may belong to another one
		c.e.mu.Unlock()
		return closedFault()
	}
	m := &s.mine.syncs[s.parity]
	m.work, m.workLen = shmem.Addr(work), uint64(len(work))
	m.code, m.bytes = uint32(backend.Code(bad)), 0
	if bad != nil {
		m.bytes = uint32(copy(m.text[:], text(bad)))
	}
	m.key.Store(s.key)
	c.e.mu.Unlock()
	if err := s.arrive(b); err != nil {
		return err
	}
	for _, o := range c.slots {
		m := &o.syncs[s.parity]
		if code := m.code; code != 0 {
			f := &backend.Fault{Sentinel: sentinel(code), Text: string(m.text[:min(int(m.bytes), len(m.text))])}
			c.e.mu.Lock()
			c.broken(f)
			c.e.unlock()
			return f
		}
	}
	return nil
}
