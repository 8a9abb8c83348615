package shm

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// collective is the state of a communicator's native collectives, one at a time.
//
// A call posts its fingerprint, and its data if they are few, on the rank's
// board, and waits until all ranks have posted. Because a rank posts call s+2
// only after all have posted s+1, and they do that only when they are done with
// s, two posts that take turns are enough, and a call whose data were all on
// the boards needs no second meeting.
type collective struct {
	c       *comm
	mine    *slots
	key     uint64
	syncing bool // wait for meet instead of post
	parity  uint32
	seen    int // ranks below are there
	call    *backend.Call
	active  bool  // waiting for posts; guarded by the engine's lock
	side    peers // access to the other ranks' buffers
}

func (s *collective) init(c *comm) {
	s.c, s.mine, s.side.s = c, c.slots[c.rank], s
	s.side.mem.Block = fetchBlock
}

// Ready implements backend.Pending: all ranks have arrived, or never will, or this
// rank has closed the communicator.
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

// find looks for another rank's board of this communicator.
func (c *comm) find(r int) *slots {
	for i := range c.e.lay.slots {
		if b := c.e.slotsOf(c.World[r], i); b.id.Load() == c.id+1 {
			return b
		}
	}
	return nil
}

// arrive publishes this rank's arrival, which has been written, and waits for
// the others.
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
	// A rank that is gone may have said why before, and may have left because of
	// a loss that is not known here yet.
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f
	}
	if f := c.brk.Load(); f != nil {
		return f
	}
	if c.closed.Load() { // the others hear from Close that this rank is gone
		return closedFault()
	}
	err := c.goneFault(s.seen)
	c.Break(err)
	return err
}

// retract takes this rank's arrival back, whose call has failed: its buffers are
// the caller's again, so that who still reads them must not find it arrived and
// complete. They have been told why before, or hear of the closing. If all have closed
// the communicator the board may be another one's, and so may the key.
func (s *collective) retract() {
	if s.syncing {
		s.mine.syncs[s.parity].key.CompareAndSwap(s.key, 0)
	} else {
		s.mine.calls[s.parity].key.CompareAndSwap(s.key, 0)
	}
}

// late ends a collective whose time is over: it names who is missing and breaks
// the communicator.
func (s *collective) late(cause error) error {
	c := s.c
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f
	}
	if f := c.brk.Load(); f != nil { // somebody else was first
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
		return true, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "a shelter has no collectives"}
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
	// The others wait for a rank no longer that they have taken for lost: if this
	// one has been, what it read may have been of later calls.
	if c.e.self.lost.Load() != 0 {
		c.e.refresh()
		return true, c.end.Load()
	}
	if c.closed.Load() { // by another goroutine: the others' boards may have been of later communicators
		return true, closedFault()
	}
	return done, err
}

// mismatch tells, the same on every rank because every rank sees all posts,
// which ranks called what.
func (s *collective) mismatch() error {
	c := s.c
	c.e.refresh()
	if f := c.end.Load(); f != nil {
		return f // what was compared may be of later calls
	}
	if f := c.brk.Load(); f != nil && f.Sentinel != backend.ErrMismatch {
		return brokenBy(f) // the others had given up the call before this one
	}
	if c.closed.Load() {
		return closedFault() // what was compared may be of later communicators
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
	return &backend.Fault{Sentinel: backend.ErrInternal, Text: "the posts changed while they were compared"}
}

// watchStrangers begins to look for messages that strangers knows, those that
// have arrived included.
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

// strangers looks at an unexpected message of the layers above: the beginning
// of a collective over messages while this rank is in a native one with the same
// number is a mismatch. The lock is held.
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

// meeting is a barrier inside a collective that tells everybody where the
// ranks' shared work is and of an error that one found.
func (s *collective) sync(b *backend.Bound, bad error, work []byte) error {
	c := s.c
	c.syncSeq++
	s.syncing, s.parity = true, c.syncSeq&1
	s.key = uint64(c.id+1)<<32 | uint64(c.syncSeq)
	c.e.mu.Lock()
	if c.slotIndex < 0 { // all have closed the communicator, and the board may be another one's
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
