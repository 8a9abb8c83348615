package shm

import (
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Notices are what ranks send each other about a communicator besides messages: that it is broken,
// and that they have closed it.

// Break implements backend.Comm.
func (c *comm) Break(err error) {
	e := c.e
	f, ok := err.(*backend.Fault)
	if !ok {
		f = &backend.Fault{Sentinel: backend.Sentinel(backend.Code(err)), Text: err.Error()}
	}
	e.mu.Lock()
	c.breakAll(f)
	e.unlock()
}

// breakAll breaks the communicator here and on the others, unless this rank has closed it: Close
// has sent what was known before, and the others may have forgotten the communicator. The lock is
// held.
func (c *comm) breakAll(f *backend.Fault) {
	if c.broken(f) && !c.closed.Load() {
		c.notify(kindBreak, f)
	}
}

// notify sends a notice to the other ranks.
func (c *comm) notify(kind uint64, f *backend.Fault) {
	e := c.e
	for r, w := range c.World {
		if r == c.rank || e.area[w].left.Load() != 0 || e.lost[w].Load() != nil {
			continue
		}
		if kind == kindBreak {
			if b := c.find(r); b != nil {
				b.news.Store(1) // even if the ring is full now
			}
		}
		e.note(w, kind, c.id, f)
	}
}

// note sends one notice, now or when there is room.
func (e *engine) note(to int, kind uint64, ctx uint32, f *backend.Fault) {
	o := e.getOp()
	o.req = &o.own
	o.own.Begin()
	o.state, o.peer, o.kind, o.note = opStopped, to, kind, f
	o.env.Ctx = ctx
	if e.waitsFor(to) || !e.push(o) {
		e.queued = append(e.queued, o)
	}
}

// pushNotice writes a notice into its ring, if there is room.
func (e *engine) pushNotice(o *op) bool {
	text, code := "", uint8(0)
	if o.note != nil {
		text, code = o.note.Text[:min(len(o.note.Text), textMax)], backend.Code(o.note.Sentinel)
	}
	cell, room, ok := e.out[o.peer].room(len(text))
	if !ok {
		return false
	}
	copy(room, text)
	e.out[o.peer].publish(cell, o.kind, o.env.Ctx, int32(code), len(text))
	e.ring(o.peer)
	e.putOp(o)
	return true
}

// early holds the notices for a communicator that is not made here yet.
type early struct {
	broken *backend.Fault
	closed []int // world ranks
}

func (e *engine) earlyFor(id uint32) *early {
	if e.early[id] == nil {
		e.early[id] = &early{}
	}
	return e.early[id]
}

// onBreak handles a notice of Break.
func (e *engine) onBreak(id uint32, f *backend.Fault) {
	switch c := e.comms[id]; {
	case c != nil:
		c.broken(f)
	case e.closing[id] == nil:
		e.earlyFor(id).broken = f
	}
}

// onClose records that another rank has closed a communicator.
func (e *engine) onClose(id uint32, world int) {
	c, open := e.comms[id]
	if !open {
		c = e.closing[id]
	}
	if c == nil {
		x := e.earlyFor(id)
		x.closed = append(x.closed, world)
		if !e.out[world].shut {
			e.note(world, kindUnmade, id, nil)
		}
		return
	}
	if r := c.RankOf(world); r >= 0 {
		c.gone[r].Store(true)
	}
	if !open {
		e.allClosed(id, c)
		return
	}
	e.dropWhere(func(o *op) error {
		if o.kind != 0 || o.comm != c && o.comm.parent != c {
			return nil
		}
		if o.state == opPosted {
			return e.cannotCome(o.comm, o.node.Env)
		}
		if o.peer == world {
			return o.comm.goneFault(c.RankOf(world))
		}
		return nil
	})
	e.wakeOthers()
}

// onUnmade records that a rank had not made a communicator when this one closed it, and may never
// do so: a loss can end the agreement on a communicator when some members have made it and others
// will not. That rank has not looked at the arrival slots and will not: if it makes the
// communicator later, it knows that this rank is gone.
func (e *engine) onUnmade(id uint32, world int) {
	c := e.closing[id]
	if c == nil {
		return
	}
	if c.unmade == nil {
		c.unmade = make([]bool, c.Size())
	}
	if r := c.RankOf(world); r >= 0 {
		c.unmade[r] = true
	}
	e.allClosed(id, c)
}

// catchUp applies the notices that came before the communicator was made.
func (e *engine) catchUp(c *comm) {
	x := e.early[c.id]
	if x == nil {
		return
	}
	delete(e.early, c.id)
	for _, w := range x.closed {
		if r := c.RankOf(w); r >= 0 {
			c.gone[r].Store(true)
		}
	}
	if x.broken != nil {
		c.broken(x.broken)
	}
}

// isGone reports whether a rank has closed the communicator, has left the job,
// or is lost.
func (c *comm) isGone(r int) bool {
	w := c.World[r]
	return c.hasClosed(r) || c.e.area[w].left.Load() != 0 || c.e.lost[w].Load() != nil
}

// hasClosed reports whether a rank has closed the communicator. A rank that has closed one no
// longer takes part in its control communicator, and may never have made it.
func (c *comm) hasClosed(r int) bool {
	return c.gone[r].Load() || c.parent != nil && c.parent.gone[r].Load()
}

// goneFault is the error of an operation that needs a rank that is gone.
func (c *comm) goneFault(r int) error {
	w := c.World[r]
	if f := c.e.cause(c, w); f != nil {
		return f
	}
	if c.isWorld || c.e.area[w].left.Load() != 0 {
		return c.e.leftFault(c, w)
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: fmt.Sprintf("rank %d has closed this communicator", r)}
}

// allClosed frees the slots when every member has closed the communicator, is lost, or has not made
// it: until then one of them may still be reading them. A collective of this rank that is in
// progress no longer writes there, and ends with ErrClosed. A member that has not made the
// communicator may still send to it, so it is forgotten later.
func (e *engine) allClosed(id uint32, c *comm) {
	all := true
	for r := range c.World {
		if r == c.rank || c.isGone(r) {
			continue
		}
		if c.unmade == nil || !c.unmade[r] {
			return
		}
		all = false
	}
	if all {
		delete(e.closing, id)
	}
	if !e.isClosed && c.slotIndex >= 0 && c.parent == nil {
		c.slots[c.rank].id.Store(0)
		e.slotsUsed[c.slotIndex] = false
		c.slotIndex = -1 // freed
	}
}

// broken marks the communicator and ends its operations: those of collectives with the cause, the
// others with ErrBroken. The lock is held.
func (c *comm) broken(f *backend.Fault) bool {
	if !c.brk.CompareAndSwap(nil, f) {
		return false
	}
	c.e.dropWhere(func(o *op) error {
		switch {
		case o.comm != c || o.state == opStopped:
			return nil
		case o.state == opPosted && o.node.Env.Tag < 0 && o.node.Env.Tag != backend.AnyTag, o.state != opPosted && o.tag < 0:
			return f
		}
		return brokenBy(f)
	})
	c.e.wakeOthers()
	return true
}

// Broken implements backend.Comm.
func (c *comm) Broken() error {
	if f := c.brk.Load(); f != nil {
		return f
	}
	if c.parent != nil { // only the end of the job ends it
		if f := c.end.Load(); f != nil {
			return f
		}
	}
	return nil
}

// Abort implements backend.Comm.
func (c *comm) Abort(code int) error {
	e := c.e
	e.mu.Lock()
	e.fail(e.me, backend.ErrPeerLost, fmt.Sprintf("rank %d aborted the job with code %d", e.me, code))
	e.unlock()
	e.wakeAll()
	return nil
}

// Close implements backend.Comm.
func (c *comm) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return nil
	}
	e := c.e
	e.mu.Lock()
	delete(e.comms, c.id)
	e.closing[c.id] = c
	e.dropWhere(func(o *op) error {
		if o.comm == c && o.kind == 0 {
			return closedFault()
		}
		return nil
	})
	e.arrived.Each(func(n *match.Node) bool {
		if n.Env.Ctx == c.id {
			m := n.Owner.(*msg)
			e.arrived.Remove(n)
			if m.desc != nil {
				e.refuse(m.from, m.desc, m.gen)
			}
			e.putMsg(m)
		}
		return true
	})
	if e.fault.Load() == nil {
		if f := c.brk.Load(); f != nil {
			c.notify(kindBreak, f) // first, so that the closing does not hide the cause
		}
		if !c.isWorld {
			c.notify(kindClose, nil)
		}
	}
	e.allClosed(c.id, c)
	e.unlock()
	e.wakeAll()
	if c.isWorld {
		e.leave()
	}
	return nil
}

// leave ends this rank's part of the job.
func (e *engine) leave() {
	e.flush()
	e.mu.Lock()
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	e.self.left.Store(1)
	e.ctl.news.Add(1)
	for r := range e.area {
		if r != e.me {
			e.ring(r)
		}
	}
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.isClosed = true
	e.unlock()
	e.wakeAll()
	if e.watch != nil {
		e.stopBeat()
		e.watch.Close()
	}
}

// flush gives notices a short time to get into full rings.
func (e *engine) flush() {
	for start := time.Now(); time.Since(start) < 100*time.Millisecond; shmem.Yield() {
		e.mu.Lock()
		e.progress()
		notes := slices.ContainsFunc(e.queued, func(o *op) bool { return o.kind != 0 })
		e.unlock()
		if !notes || e.fault.Load() != nil {
			return
		}
	}
}
