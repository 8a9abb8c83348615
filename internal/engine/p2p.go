package engine

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Send implements backend.Comm. A short message to a link with room is written before the lock is released.
func (c *comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	e := c.e
	if err := c.usable(); err != nil {
		return err
	}
	e.mu.Lock()
	if mode == backend.Standard && c.sendNow(buf, dest, tag) {
		return nil
	}
	o := e.ops.get()
	o.comm, o.req = c, &o.own
	o.own.Begin()
	e.send(o, buf, c.World[dest], int32(tag), mode)
	e.mu.Unlock()
	_, err := c.finishBlocking(b, o)
	return err
}

// Recv implements backend.Comm.
func (c *comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	e := c.e
	if err := c.usable(); err != nil {
		return backend.Status{}, err
	}
	want := c.pattern(source, tag)
	e.mu.Lock()
	looks := 1
	if e.cfg.Spare {
		looks = directLooks
	}
	if st, ok, err := c.recvNow(want, buf, looks); ok {
		e.mu.Unlock()
		return st, err
	}
	o := e.ops.get()
	o.comm, o.req = c, &o.own
	o.own.Begin()
	e.recv(o, buf, want)
	e.mu.Unlock()
	return c.finishBlocking(b, o)
}

// sendNow is the fast path of Send: a short message on a link through memory that has room. It releases the lock
// if it returns true. To unlock is an atomic exchange, so that the receiver can see the message before this rank
// looks whether it sleeps.
func (c *comm) sendNow(buf []byte, dest, tag int) bool {
	p := c.e.peers[c.World[dest]]
	if p == nil || p.mem == nil || p.link == nil || p.first != nil || p.fresh || p.broken != nil || c.isGone(dest) ||
		len(buf) >= memlink.CopyMin || !p.mem.Send(c.id, int32(tag), buf) {
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
	if p == nil || p.mem == nil || p.link == nil || p.fresh || e.arrived.Len() > 0 {
		return st, false, nil
	}
	if e.posted.Len() > 0 {
		p.takeShort()
	}
	if e.posted.Len() > 0 {
		return st, false, nil
	}
	for range looks {
		if !p.mem.Arrived() {
			continue
		}
		ctx, tag, size, _ := p.mem.Peek(&p.in)
		if size < 0 || !want.Takes(match.Env{Ctx: ctx, Source: want.Source, Tag: tag}) {
			break // left to the general path
		}
		p.quiet = 0
		if n := p.mem.Receive(buf, size); size > n {
			err = truncated(size, len(buf))
		}
		return backend.Status{Source: c.RankOf(p.rank), Tag: int(tag), Bytes: size}, true, err
	}
	return st, false, nil
}

// finishBlocking waits for o and gives it back.
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

// giveUp cancels an operation at its deadline. If its message is being transferred, it gets a little more
// time, and then the communicator is broken. But a short message that is partly written is sent, from a
// copy, and one that has partly arrived waits for the next receive. The engine keeps the op (kept) of a
// receive into whose buffer the peer may be copying.
func (c *comm) giveUp(o *op, cause error) (kept bool, err error) {
	e := c.e
	e.mu.Lock()
	canceled := e.cancel(o, &o.own, cause)
	e.mu.Unlock()
	if canceled {
		return false, cause
	}
	c.Await(&backend.Bound{Timeout: 20 * time.Millisecond}, &o.own)
	e.mu.Lock()
	switch {
	case o.own.Ready():
		e.mu.Unlock()
		return false, nil
	case e.putBack(o):
		e.finish(o, backend.Status{}, cause)
		e.mu.Unlock()
		return false, cause
	case o.state == opQueued:
		e.drop(o, nil)
		e.mu.Unlock()
		return false, nil
	}
	e.drop(o, cause)
	if kept = o.state == opCopying; kept {
		o.state = opStopped
	}
	e.mu.Unlock()
	c.Break(cause)
	return kept, cause
}

// putBack turns a short message that has partly arrived into an unexpected one, and reports whether it
// could.
func (e *Engine) putBack(o *op) bool {
	if o.state != opTaking || o.fixed {
		return false
	}
	p := e.peers[o.peer]
	if p.op != o || p.in.Head.Kind != frame.Eager || int(p.in.Head.Length) > len(o.buf) {
		return false
	}
	m := e.msgs.get()
	m.size = int(p.in.Head.Length)
	m.buf = e.getBuf(m.size)
	here := copy(m.buf, o.buf[:m.size-p.in.Left])
	p.op, p.msg, p.in.Dst = nil, m, m.buf[here:]
	return true
}

// begin returns the operation of a request. The lock is held.
func (c *comm) begin(r *backend.Request) *op {
	o := c.e.ops.get()
	o.comm, o.req, o.parts, o.whole = c, r, r.Parts, 0
	r.Impl = o
	return o
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
	if mode == backend.Standard && r.Notify == nil && r.Parts == nil && c.usable() == nil && c.sendNow(buf, dest, tag) {
		r.Finish(backend.Status{}, nil)
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
	return p.mem != nil && !parts.Scattered() && p.mem.Copies(n)
}

// Irecv implements backend.Comm.
func (c *comm) Irecv(r *backend.Request, buf []byte, source, tag int) {
	e, want := c.e, c.pattern(source, tag)
	e.mu.Lock()
	if r.Notify == nil && c.usable() == nil {
		if st, ok, err := c.recvNow(want, buf, 1); ok {
			e.mu.Unlock()
			r.Finish(st, err)
			return
		}
	}
	o := c.begin(r)
	e.recv(o, buf, want)
	e.mu.Unlock()
}

// send starts a send. The lock is held.
func (e *Engine) send(o *op, buf []byte, to int, tag int32, mode backend.Mode) {
	o.buf, o.peer, o.tag, o.size, o.at = buf, to, tag, len(buf), 0
	if err := o.comm.usable(); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	if to == e.me {
		e.sendSelf(o, mode == backend.Standard && len(buf) <= EagerMax)
		return
	}
	p := e.peers[to]
	if r := o.comm.RankOf(to); o.comm.isGone(r) {
		e.finish(o, backend.Status{}, o.comm.goneFault(r))
		return
	}
	h := frame.Header{Kind: frame.Eager, Context: o.comm.id, Tag: tag, Length: uint64(len(buf))}
	if o.parts == nil && p.mem != nil && p.mem.Copies(len(buf)) && e.expose(p, o, h) {
		return
	}
	if mode == backend.Standard && len(buf) <= p.eagerMax() {
		o.state = opQueued
		if p.emit(h, buf, o) {
			e.finish(o, backend.Status{}, nil)
		} else {
			e.enter(o) // where sweep finds it
		}
		return
	}
	e.enter(o)
	o.state = opRequested
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

// recv starts a receive. The lock is held.
func (e *Engine) recv(o *op, buf []byte, want match.Env) {
	o.buf, o.tag, o.fixed = buf, want.Tag, false
	o.node.Env, o.node.Owner = want, o
	e.order++
	o.order = e.order
	if err := o.comm.usable(); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	if e.takeArrived(o) {
		return
	}
	if err := o.comm.cannotCome(want); err != nil {
		e.finish(o, backend.Status{}, err)
		return
	}
	o.state = opPosted
	e.posted.Push(&o.node)
}

// takeArrived gives a receive the first message that has arrived for it, and reports whether there is one.
func (e *Engine) takeArrived(o *op) bool {
	for {
		n := e.arrived.TakeArrived(o.node.Env)
		if n == nil {
			return false
		}
		if e.takeMsg(o, n.Owner.(*msg)) {
			return true
		}
	}
}

// takeMsg gives an arrived message to a receive. It returns false if the sender has withdrawn the message.
func (e *Engine) takeMsg(o *op, m *msg) bool {
	env, size := m.node.Env, m.size
	switch m.kind {
	case msgSelf:
		s := m.send
		n := shmem.Move(o.buf, s.buf)
		e.putMsg(m)
		e.finish(s, backend.Status{}, nil)
		e.received(o, env, size, n)
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
	env := match.Env{Ctx: o.comm.id, Source: int32(e.me), Tag: o.tag}
	if n := e.posted.TakePosted(env); n != nil {
		to, size := n.Owner.(*op), len(o.buf)
		copied := shmem.Move(to.buf, o.buf)
		e.finish(o, backend.Status{}, nil)
		e.received(to, env, size, copied)
		return
	}
	m := e.msgs.get()
	m.size = len(o.buf)
	if eager {
		m.buf = e.getBuf(m.size)
		shmem.Move(m.buf, o.buf)
		e.keep(m, env)
		e.finish(o, backend.Status{}, nil)
		return
	}
	m.kind, m.send, o.self, o.state = msgSelf, o, m, opRequested
	e.enter(o)
	e.keep(m, env)
}

// Cancel implements backend.Comm.
func (c *comm) Cancel(r *backend.Request) bool {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	o, ok := r.Impl.(*op) // none any more once it is complete
	return ok && e.cancel(o, r, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "canceled before it matched"})
}

// cancel cancels an operation that has not matched, completing it with err. A send whose CTS has not
// arrived has not matched: the peer gets a notice, and posts its receive again. The lock is held.
func (e *Engine) cancel(o *op, r *backend.Request, err error) bool {
	if o.req != r || !r.Active() {
		return false
	}
	switch o.state {
	case opPosted:
	case opQueued:
		if e.peers[o.peer].started(o.frame) {
			return false
		}
	case opRequested:
		if o.peer != e.me {
			p, token := e.peers[o.peer], o.token
			begun := o.frame == nil || p.started(o.frame)
			e.drop(o, err)
			if begun {
				p.emit(frame.Header{Kind: frame.Withdraw, Token: token}, nil, nil)
			}
			return true
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
	switch o.state {
	case opPosted:
		e.posted.Remove(&o.node)
	case opQueued, opRequested, opStreaming:
		if m := o.self; m != nil {
			if e.arrived.Remove(&m.node) {
				e.putMsg(m)
			} else { // Mprobe has it
				m.gone, m.send = true, nil
			}
		} else {
			e.peers[o.peer].detach(o)
		}
	case opTaking:
		if p := e.peers[o.peer]; p.op == o {
			p.op, p.in.Dst = nil, nil
		}
	case opExposed:
		p := e.peers[o.peer]
		p.detach(o)
		if o.transfer.Active() && !p.mem.Withdraw(&o.transfer) {
			err = nil // the receiver had finished
		}
	case opCopying, opStopped:
		p := e.peers[o.peer]
		p.mem.Stop(&o.transfer, err)
		return
	}
	e.finish(o, backend.Status{}, err)
}
