package shm

import (
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// Send implements backend.Comm. A short message to a ring with room is on its way when the lock is
// released.
func (c *comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	e := c.e
	if err := c.usable(); err != nil {
		return err
	}
	to := c.World[dest]
	if mode == backend.Standard && len(buf) <= e.lay.eagerMax() && to != e.me {
		e.mu.Lock()
		o := &e.out[to]
		if len(e.queued) == 0 && !o.shut {
			if cell, room, ok := o.room(len(buf)); ok {
				copy(room, buf)
				o.publish(cell, kindEager, c.id, int32(tag), len(buf))
				e.mu.Unlock()
				e.ring(to)
				return nil
			}
		}
		e.mu.Unlock()
	}
	e.mu.Lock()
	op := e.getOp()
	op.comm, op.req = c, &op.own
	op.own.Begin()
	e.send(op, buf, to, int32(tag), mode)
	e.unlock()
	_, err := c.finishBlocking(b, op)
	return err
}

// Recv implements backend.Comm.
func (c *comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	e := c.e
	if err := c.usable(); err != nil {
		return backend.Status{}, err
	}
	want := c.pattern(source, tag)
	if st, ok, err := c.recvNow(want, buf); ok {
		return st, err
	}
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, &o.own
	o.own.Begin()
	e.recv(o, buf, want)
	e.unlock()
	return c.finishBlocking(b, o)
}

// recvNow is the fast path of Recv: if nothing waits to be matched, it polls the ring of the source
// for a short time and copies straight out of it.
func (c *comm) recvNow(want match.Env, buf []byte) (st backend.Status, ok bool, err error) {
	e := c.e
	if want.Source == backend.AnySource || int(want.Source) == e.me {
		return st, false, nil
	}
	e.mu.Lock()
	if e.arrived.Len() > 0 || e.posted.Len() > 0 {
		e.unlock()
		return st, false, nil
	}
	src := int(want.Source)
	in := &e.in[src]
	spin := 1
	if e.spare {
		spin = directSpin
	}
	for range spin {
		h, payload, have := in.peek()
		if !have {
			continue
		}
		env := match.Env{Ctx: h.ctx, Source: want.Source, Tag: h.tag}
		if h.kind != kindEager || payload == nil || !want.Takes(env) {
			break // left to the general path
		}
		n := copy(buf, payload)
		acked := in.take(len(payload))
		e.mu.Unlock()
		if acked {
			e.ring(src)
		}
		if h.size > n {
			err = truncated(h.size, len(buf))
		}
		return backend.Status{Source: c.RankOf(src), Tag: int(h.tag), Bytes: h.size}, true, err
	}
	e.mu.Unlock()
	return st, false, nil
}

// directSpin is how often recvNow polls, with the lock held: about 2 µs.
const directSpin = 1500

// finishBlocking waits for o and frees it.
func (c *comm) finishBlocking(b *backend.Bound, o *op) (backend.Status, error) {
	e := c.e
	err := c.Await(b, &o.own)
	if err != nil {
		var kept bool
		if kept, err = c.giveUp(o, err); kept {
			return backend.Status{}, err
		}
	}
	st := o.own.Status
	if err == nil {
		err = o.own.Err
	}
	e.mu.Lock()
	e.putOp(o)
	e.mu.Unlock()
	return st, err
}

// giveUp cancels an operation whose time is up. If its peer is copying already, giveUp gives it a
// little time and then breaks the communicator. The engine keeps the op of a receive whose sender
// is in the middle of a chunk.
func (c *comm) giveUp(o *op, cause error) (kept bool, err error) {
	e := c.e
	e.mu.Lock()
	canceled := e.cancel(o, &o.own, cause)
	e.unlock()
	if canceled {
		return false, cause
	}
	c.Await(&backend.Bound{Timeout: 20 * time.Millisecond}, &o.own)
	e.mu.Lock()
	switch {
	case o.own.Ready():
		e.unlock()
		return false, nil
	case o.state == opTaking:
		e.stopTake(o, cause)
		e.moveTakes()
	case o.state == opRTS && e.withdraw(o):
		e.finish(o, backend.Status{}, cause)
	default: // it has just completed
		e.moveRTS()
	}
	if kept = !o.own.Ready(); kept {
		o.state = opStopped
	}
	e.unlock()
	c.Break(cause)
	return kept, cause
}

// Isend implements backend.Comm.
func (c *comm) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if err := c.usable(); err != nil {
		r.Complete(backend.Status{}, err)
		return
	}
	e := c.e
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, r
	r.Impl = o
	e.send(o, buf, c.World[dest], int32(tag), mode)
	e.unlock()
}

// Irecv implements backend.Comm.
func (c *comm) Irecv(r *backend.Request, buf []byte, source, tag int) {
	if err := c.usable(); err != nil {
		r.Complete(backend.Status{}, err)
		return
	}
	e := c.e
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, r
	r.Impl = o
	e.recv(o, buf, c.pattern(source, tag))
	e.unlock()
}

// send starts a send. The lock is held.
func (e *engine) send(o *op, buf []byte, to int, tag int32, mode backend.Mode) {
	o.buf, o.peer, o.tag, o.mode, o.size = buf, to, tag, mode, len(buf)
	if err := o.comm.usable(); err != nil { // it may have broken meanwhile
		e.finish(o, backend.Status{}, err)
		return
	}
	if e.isOut(to) {
		e.finish(o, backend.Status{}, e.leftFault(o.comm, to))
		return
	}
	if c := o.comm; c.parent != nil && to != e.me && c.hasClosed(c.RankOf(to)) { // it may never make this control communicator
		e.finish(o, backend.Status{}, c.goneFault(c.RankOf(to)))
		return
	}
	if e.waitsFor(to) || !e.push(o) {
		o.state = opQueued
		e.queued = append(e.queued, o)
	}
}

// waitsFor reports whether an earlier send to the same rank is still queued: later messages must
// not overtake it.
func (e *engine) waitsFor(to int) bool {
	for _, q := range e.queued {
		if q.peer == to {
			return true
		}
	}
	return false
}

// push writes a send into its ring, if there is room.
func (e *engine) push(o *op) bool {
	if o.kind != 0 {
		return e.pushNotice(o)
	}
	if o.peer == e.me {
		return e.pushSelf(o)
	}
	out := &e.out[o.peer]
	if o.mode == backend.Standard && len(o.buf) <= e.lay.eagerMax() {
		cell, room, ok := out.room(len(o.buf))
		if !ok {
			return false
		}
		copy(room, o.buf)
		out.publish(cell, kindEager, o.comm.id, o.tag, len(o.buf))
		e.ring(o.peer)
		e.finish(o, backend.Status{}, nil)
		return true
	}
	return e.sendRTS(o, out)
}

// moveQueued sends queued messages for which there is room now.
func (e *engine) moveQueued() bool {
	moved := false
	keep := e.queued[:0]
	blocked := uint64(0) // destinations, a small Bloom filter: order matters
	for _, o := range e.queued {
		bit := uint64(1) << (o.peer % 64)
		if blocked&bit == 0 && e.push(o) {
			moved = true
			continue
		}
		blocked |= bit
		keep = append(keep, o)
	}
	clear(e.queued[len(keep):])
	e.queued = keep
	return moved
}

// recv starts a receive. The lock is held.
func (e *engine) recv(o *op, buf []byte, want match.Env) {
	o.buf = buf
	o.node.Env, o.node.Owner = want, o
	for {
		n := e.arrived.TakeArrived(want)
		if n == nil {
			break
		}
		m := n.Owner.(*msg)
		if e.takeMsg(o, m) {
			return
		}
	}
	if err := o.comm.usable(); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	if err := e.cannotCome(o.comm, want); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	o.state = opPosted
	e.posted.Push(&o.node)
}

// takeMsg gives an arrived message to a receive. It returns false if the sender has revoked the
// message.
func (e *engine) takeMsg(o *op, m *msg) bool {
	env := m.node.Env
	if m.desc != nil {
		ok := e.accept(o, m.desc, m.gen, m.addr, m.size, env)
		e.putMsg(m)
		return ok
	}
	n := copy(o.buf, m.buf)
	size := m.size
	e.putMsg(m)
	e.received(o, env, size, n)
	return true
}

// pushSelf moves a message within the rank.
func (e *engine) pushSelf(o *op) bool {
	env := match.Env{Ctx: o.comm.id, Source: int32(e.me), Tag: o.tag}
	if n := e.posted.TakePosted(env); n != nil {
		to, size := n.Owner.(*op), len(o.buf)
		copied := copy(to.buf, o.buf)
		e.finish(o, backend.Status{}, nil)
		e.received(to, env, size, copied)
		return true
	}
	eager := o.mode == backend.Standard && len(o.buf) <= e.lay.eagerMax()
	if !eager && !e.grab(o) {
		return false
	}
	m := e.getMsg()
	m.size, m.from = len(o.buf), e.me
	if eager {
		if m.size > 0 {
			m.buf = append(e.getBuf()[:0], o.buf...)
		}
		e.keep(m, env)
		e.finish(o, backend.Status{}, nil)
		return true
	}
	m.desc, m.idx, m.gen = o.desc, o.idx, o.gen
	e.keep(m, env)
	return true
}

// Cancel implements backend.Comm.
func (c *comm) Cancel(r *backend.Request) bool {
	e := c.e
	e.mu.Lock()
	defer e.unlock()
	o, ok := r.Impl.(*op) // nil once it is complete
	return ok && e.cancel(o, r, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "canceled before it matched"})
}

// cancel completes an operation that has not matched with err, and reports whether it did. The lock
// is held.
func (e *engine) cancel(o *op, r *backend.Request, err error) bool {
	if o.req != r || !r.Active() {
		return false
	}
	switch o.state {
	case opPosted:
		e.posted.Remove(&o.node)
	case opQueued:
		i := slices.Index(e.queued, o)
		e.queued = slices.Delete(e.queued, i, i+1)
	case opRTS:
		if !e.revoke(o) {
			return false
		}
	default:
		return false
	}
	e.finish(o, backend.Status{}, err)
	return true
}
