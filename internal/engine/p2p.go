package engine

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Send implements backend.Comm. A short message to a link with room is written before the lock is released.
func (c *comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	e := c.e
	e.mu.Lock()
	if !mode.Synchronous && c.usable() == nil && c.sendNow(buf, dest, tag, mode.Elems, true) {
		return nil
	}
	o := c.begin(nil)
	e.send(o, buf, c.World[dest], int32(tag), mode)
	e.mu.Unlock()
	_, err := c.finishBlocking(b, o)
	return err
}

// Recv implements backend.Comm.
func (c *comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	e, want := c.e, c.pattern(source, tag)
	e.mu.Lock()
	looks := 1
	if e.cfg.Spare {
		looks = directLooks
	}
	if c.usable() == nil {
		if st, ok, err := c.recvNow(want, buf, looks); ok {
			e.mu.Unlock()
			return st, err
		}
	}
	o := c.begin(nil)
	e.recv(o, buf, want)
	e.mu.Unlock()
	return c.finishBlocking(b, o)
}

// sendNow is the fast path of Send: a short message on a link through memory that has room. It releases the lock
// if it returns true. To unlock is an atomic exchange, so that the receiver can see the message before this rank
// looks whether it sleeps.
func (c *comm) sendNow(buf []byte, dest, tag int, elems backend.Elems, blocking bool) bool {
	p := c.e.peers[c.World[dest]]
	if p == nil || p.mem == nil || p.link == nil || p.first != nil || p.writeErr != nil || c.isGone(dest) ||
		len(buf) >= memlink.CopyMin || !p.mem.Send(c.id, int32(tag), uint16(elems), buf, blocking) {
		return false
	}
	p.mute = 0
	mem := p.mem
	p.e.mu.Unlock()
	if mem.Asleep() {
		p.e.mu.Lock()
		if p.mem == mem && p.link != nil {
			mem.Ring()
		}
		p.e.mu.Unlock()
	}
	return true
}

// directLooks is how often Recv looks for its message with the lock held: about 2 µs.
const directLooks = 1500

// recvNow is the fast path of Recv: if nothing waits to be matched, it looks for the message on the link of the
// source that many times, and copies it straight out of the link.
func (c *comm) recvNow(want match.Env, buf []byte, looks int) (st backend.Status, ok bool, err error) {
	e := c.e
	if want.Source == backend.AnySource {
		return st, false, nil
	}
	p := e.peers[want.Source]
	if p == nil || p.mem == nil || p.link == nil || e.arrived.Len() > 0 {
		return st, false, nil
	}
	if e.posted.Len() > 0 {
		p.takeShort()
	}
	if e.posted.Len() > 0 {
		return st, false, nil
	}
	for i := range looks {
		if !p.mem.Arrived() {
			if i == 1 { // the second look: Recv waits
				p.mem.Awaits()
			}
			continue
		}
		ctx, tag, elems, size, _ := p.mem.Peek(&p.in)
		if size < 0 || !want.Takes(match.Env{Ctx: ctx, Source: want.Source, Tag: tag}) {
			break // left to the general path
		}
		p.quiet = 0
		if n := p.mem.Receive(buf, size); size > n {
			err = &backend.TooLong{Bytes: size, Room: len(buf)}
		}
		return backend.Status{Source: c.RankOf(p.rank), Tag: int(tag), Bytes: size, Elems: backend.Elems(elems)}, true, err
	}
	return st, false, nil
}

// finishBlocking waits for o and gives it back. The engine keeps the op of a receive into whose buffer the peer may
// be copying.
func (c *comm) finishBlocking(b *backend.Bound, o *op) (backend.Status, error) {
	e := c.e
	if cause := c.Await(b, &o.own); cause != nil && !c.giveUp(o, cause) {
		return backend.Status{}, cause
	}
	st, err := o.own.Status, o.own.Err
	e.mu.Lock()
	e.putOp(o)
	e.mu.Unlock()
	return st, err
}

// giveUp ends an operation at its deadline, and reports false if that takes longer. If its message is being
// transferred, it gets a little more time, and then the communicator is broken.
func (c *comm) giveUp(o *op, cause error) (ended bool) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cancel(o, &o.own, cause) {
		return true
	}
	e.mu.Unlock()
	c.Await(&backend.Bound{Timeout: backend.Grace}, &o.own)
	e.mu.Lock()
	return o.own.Ready() || e.abandon(o, cause)
}

// abandon ends an operation in any state, and breaks the communicator if its message may be missing otherwise. It
// reports false if the operation ends later, and nobody waits for it. The lock is held.
func (e *Engine) abandon(o *op, cause error) (ended bool) {
	c, r := o.comm, o.req
	if e.cancel(o, r, cause) || r.Ready() {
		return true
	}
	if o.state == opWithdrawing { // the receiver breaks the communicator, if it must
		e.peers[o.peer].emit(frame.Header{Kind: frame.Withdraw, Tag: 1, Token: o.token}, nil, nil)
		e.drop(o, cause)
		return true
	}
	e.drop(o, cause)
	ended = r.Ready()
	if ended && r.Err == nil { // the receiver had taken it all
		return true
	}
	if !ended {
		e.put(o, opStopped)
	}
	c.breakEverywhere(backend.AsFault(cause))
	return ended
}

// putBack turns a short message that has partly arrived into an unexpected one, and reports whether it
// could.
func (e *Engine) putBack(o *op) bool {
	p := e.peers[o.peer]
	if int(p.in.Head.Length) > len(o.buf) {
		return false
	}
	m := e.storage.msgs.get()
	m.size = int(p.in.Head.Length)
	m.buf = e.getBuf(m.size)
	here := copy(m.buf, o.buf[:m.size-p.in.Left])
	e.put(o, opIdle)
	p.msg, p.in.Dst = m, m.buf[here:]
	return true
}

// Isend implements backend.Comm.
func (c *comm) Isend(r *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	e := c.e
	e.mu.Lock()
	if r.Parts != nil && c.whole(r.Parts, len(buf), c.World[dest]) {
		e.mu.Unlock() // packing takes long
		r.Parts.Pack(buf)
		r.Parts = nil
		e.mu.Lock()
	}
	if !mode.Synchronous && r.Notify == nil && r.Parts == nil && c.usable() == nil && c.sendNow(buf, dest, tag, mode.Elems, false) {
		r.FinishAtOnce(backend.Status{}, nil)
		return
	}
	o := c.begin(r)
	e.send(o, buf, c.World[dest], int32(tag), mode)
	e.mu.Unlock()
}

// whole reports whether a message is packed before it is sent. If the kernel copies messages faster than they go
// through the rings, which two processors without a common cache do, only packing that takes longer is worth it.
func (c *comm) whole(parts backend.Parts, n, to int) bool {
	if to == c.e.me || n <= EagerMax {
		return true
	}
	p := c.e.peers[to]
	return p.mem != nil && !parts.Scattered() && p.mem.ChooseCopy(n)
}

// passMost is how many calls of Irecv look at no link after one that has looked in vain. A look takes the cache line away
// that the sender is about to write; when the sender is a few messages ahead it keeps the lines.
const passMost = 3

// Irecv implements backend.Comm.
func (c *comm) Irecv(r *backend.Request, buf []byte, source, tag int) {
	e, want := c.e, c.pattern(source, tag)
	e.mu.Lock()
	if e.passes > 0 {
		e.passes--
	} else if r.Notify == nil && c.usable() == nil {
		if st, ok, err := c.recvNow(want, buf, 1); ok {
			e.mu.Unlock()
			r.FinishAtOnce(st, err)
			return
		}
		e.passes = passMost
	}
	o := c.begin(r)
	e.recv(o, buf, want)
	e.mu.Unlock()
}

// send starts a send. The lock is held.
func (e *Engine) send(o *op, buf []byte, to int, tag int32, mode backend.Mode) {
	o.buf, o.peer, o.tag, o.size, o.at = buf, to, tag, len(buf), 0
	o.env.Elems = mode.Elems
	if err := o.comm.usable(); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	if to == e.me {
		e.sendSelf(o, !mode.Synchronous && len(buf) <= EagerMax)
		return
	}
	p := e.peers[to]
	if r := o.comm.RankOf(to); o.comm.isGone(r) {
		e.finish(o, backend.Status{}, o.comm.goneFault(r))
		return
	}
	if p.mem != nil {
		if err := p.mem.Make(); err != nil {
			c := o.comm
			e.finish(o, backend.Status{}, err)
			if tag < 0 || c.parent != nil { // not the program's: the others wait for it without end
				c.breakEverywhere(backend.AsFault(err))
			}
			return
		}
	}
	h := frame.Header{Kind: frame.Eager, Context: o.comm.id, Elems: uint16(o.env.Elems), Tag: tag, Length: uint64(len(buf))}
	if o.parts == nil && p.mem != nil && p.mem.ChooseCopy(len(buf)) && e.expose(p, o, h) {
		return
	}
	if !mode.Synchronous && len(buf) <= p.eagerMax() {
		if o.req.Owner != nil && p.burst(len(buf)) {
			e.put(o, opQueued)
			p.keep(h, buf, o)
		} else if p.emit(h, buf, o) {
			e.finish(o, backend.Status{}, nil)
		} else {
			e.put(o, opQueued)
		}
		return
	}
	e.put(o, opRequested)
	h.Kind, h.Token = frame.ReadyToSend, o.token
	p.emit(h, nil, o)
}

// eagerMax returns the longest message that goes without a rendezvous.
func (p *peer) eagerMax() int {
	if p.link == nil {
		return EagerMax
	}
	return p.link.EagerMax()
}

// recv starts a receive: it gets the first message that has arrived for it, or is posted. The lock is held.
func (e *Engine) recv(o *op, buf []byte, want match.Env) {
	o.buf, o.tag = buf, want.Tag
	o.node.Env, o.node.Owner = want, o
	if err := o.comm.usable(); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	for n := e.arrived.FindArrived(o.node.Env); n != nil; n = e.arrived.FindArrived(o.node.Env) {
		e.arrived.Remove(n)
		if e.takeMsg(o, n.Owner.(*msg)) {
			return
		}
	}
	if err := o.comm.cannotCome(o.node.Env); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	e.put(o, opPosted)
}

// takeMsg gives an arrived message to a receive. It returns false if the sender has withdrawn the message.
func (e *Engine) takeMsg(o *op, m *msg) bool {
	env, size := m.node.Env, m.size
	switch m.kind {
	case msgSelf:
		s := m.send
		s.self = nil
		e.putMsg(m)
		e.pass(s, o, env)
	case msgEager:
		n := shmem.Move(o.buf, m.buf)
		e.putMsg(m)
		e.received(o, env, size, n)
	default:
		kind, token, addr := m.kind, m.token, m.addr
		e.putMsg(m)
		return e.take(o, kind, token, addr, size, env)
	}
	return true
}

// sendSelf sends a message to this rank itself.
func (e *Engine) sendSelf(o *op, eager bool) {
	env := match.Env{Ctx: o.comm.id, Source: int32(e.me), Tag: o.tag, Elems: o.env.Elems}
	if n := e.posted.FindPosted(env); n != nil {
		e.pass(o, n.Owner.(*op), env)
		return
	}
	m := e.storage.msgs.get()
	m.size = len(o.buf)
	if eager {
		m.buf = e.getBuf(m.size)
		shmem.Move(m.buf, o.buf)
		e.keep(m, env)
		e.finish(o, backend.Status{}, nil)
		return
	}
	m.kind, m.send, o.self = msgSelf, o, m
	e.put(o, opRequested)
	e.keep(m, env)
}

// moveMax is how much of a message to this rank is copied at a time, with the lock held: about 10 µs.
const moveMax = 128 << 10

// pass moves a message of this rank to a receive of its own.
func (e *Engine) pass(s, o *op, env match.Env) {
	size, n := len(s.buf), min(len(s.buf), len(o.buf))
	if n <= moveMax {
		shmem.Move(o.buf, s.buf)
		e.finish(s, backend.Status{}, nil)
		e.received(o, env, size, n)
		return
	}
	o.peer, o.env, o.tag, o.size, o.n, o.at = e.me, env, env.Tag, size, n, 0
	e.put(s, opMoving)
	e.put(o, opMoving)
	s.pair, o.pair = o, s
	e.moving = append(e.moving, o)
}

// moveSelf copies a part of a message of this rank to itself.
func (e *Engine) moveSelf() {
	o := e.moving[0]
	s, end := o.pair, min(o.n, o.at+moveMax)
	o.at += shmem.Move(o.buf[o.at:end], s.buf[o.at:end])
	if o.at == o.n {
		e.moving = slices.Delete(e.moving, 0, 1)
		e.finish(s, backend.Status{}, nil)
		e.received(o, o.env, o.size, o.n)
	}
}

// Cancel implements backend.Comm.
func (c *comm) Cancel(r *backend.Request) bool {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := r.Impl.(*op) // none any more once it is complete
	return ok && e.cancel(o, r, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "canceled before it matched"})
}

// GiveUp ends a send with err that is canceled and whose receiver has not answered. It reports whether the request has
// ended.
func (c *comm) GiveUp(r *backend.Request, err error) bool {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := r.Impl.(*op)
	return r.Ready() || ok && o.state == opWithdrawing && e.abandon(o, err)
}

// cancel cancels an operation that has not matched, completing it with err. It asks the peer whether a send has matched
// whose RTS is written; the answer, or the CTS, ends the send. A short message that has partly
// arrived waits for the next receive; one that is partly written is sent, from a copy. The lock is held.
func (e *Engine) cancel(o *op, r *backend.Request, err error) bool {
	if o.req != r || !r.Active() {
		return false
	}
	switch o.state {
	case opPosted:
	case opQueued:
		if e.peers[o.peer].started(o.frame) {
			e.drop(o, nil)
			return false
		}
	case opArriving:
		if !e.putBack(o) {
			return false
		}
	case opRequested:
		if p := e.peers[o.peer]; p != nil && (o.frame == nil || p.started(o.frame)) {
			o.cause = err
			e.put(o, opWithdrawing)
			p.emit(frame.Header{Kind: frame.Withdraw, Token: o.token}, nil, nil)
			return false
		}
	case opExposed:
		if !e.peers[o.peer].mem.Revoke(&o.transfer) {
			return false
		}
	default:
		return false
	}
	e.drop(o, err)
	return true
}

// drop ends an operation in any state, without a notice to its peer. A receive by transfer ends once the
// peer does not write to its buffer any more.
func (e *Engine) drop(o *op, err error) {
	p := e.peers[o.peer]
	switch o.state {
	case opQueued, opRequested, opWithdrawing, opStreaming:
		switch m := o.self; {
		case p != nil:
			p.detach(o)
		case m != nil && e.arrived.Remove(&m.node):
			e.putMsg(m)
		case m != nil: // Mprobe has it
			m.gone, m.send = true, nil
		}
	case opMoving: // the other end waits for the end of the communicator
		e.moving = slices.DeleteFunc(e.moving, func(x *op) bool { return x == o || x.pair == o })
	case opExposed:
		p.detach(o)
		if o.transfer.Active() && !p.mem.Withdraw(&o.transfer) {
			err = nil // the receiver had finished
		}
	case opCopying, opStopped:
		p.mem.Stop(&o.transfer, err)
		e.wakeLeader() // Step ends it
		return
	}
	e.finish(o, backend.Status{}, err)
}
