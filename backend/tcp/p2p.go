package tcp

import (
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// Send implements backend.Comm. A short message to a socket with room is sent before the lock is released.
func (c *comm) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	e := c.e
	if err := c.usable(); err != nil {
		return err
	}
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, &o.own
	o.own.Begin()
	e.send(o, buf, c.World[dest], int32(tag), mode)
	e.unlock()
	_, err := c.finishBlocking(b, o)
	return err
}

// Recv implements backend.Comm.
func (c *comm) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	e := c.e
	if err := c.usable(); err != nil {
		return backend.Status{}, err
	}
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, &o.own
	o.own.Begin()
	e.recv(o, buf, c.pattern(source, tag))
	e.unlock()
	return c.finishBlocking(b, o)
}

// finishBlocking waits for o and gives it back.
func (c *comm) finishBlocking(b *backend.Bound, o *op) (backend.Status, error) {
	e := c.e
	err := c.Await(b, &o.own)
	if err != nil {
		err = c.giveUp(o, err)
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
// time, and then the communicator is broken. But a short message that is partly in the socket is sent,
// from a copy, and one that has partly arrived waits for the next receive.
func (c *comm) giveUp(o *op, cause error) error {
	e := c.e
	e.mu.Lock()
	canceled := e.cancel(o, &o.own, cause)
	e.unlock()
	if canceled {
		return cause
	}
	c.Await(&backend.Bound{Timeout: 20 * time.Millisecond}, &o.own)
	e.mu.Lock()
	switch {
	case o.own.Ready():
		e.unlock()
		return nil
	case e.putBack(o):
		e.finish(o, backend.Status{}, cause)
		e.unlock()
		return cause
	case o.state == opQueued:
		e.drop(o, nil)
		e.unlock()
		return nil
	}
	e.drop(o, cause)
	e.unlock()
	c.Break(cause)
	return cause
}

// putBack turns a short message that has partly arrived into an unexpected one, and reports whether it
// could.
func (e *engine) putBack(o *op) bool {
	if o.state != opTaking || o.fixed {
		return false
	}
	l := e.links[o.peer]
	if l.op != o || l.head.Kind != wire.Eager || int(l.head.Length) > len(o.buf) {
		return false
	}
	m := e.getMsg()
	m.size = int(l.head.Length)
	m.buf = e.getBuf(m.size)
	here := copy(m.buf, o.buf[:m.size-l.left])
	l.op, l.msg, l.dst = nil, m, m.buf[here:]
	return true
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
	o.buf, o.peer, o.tag, o.size, o.at = buf, to, tag, len(buf), 0
	if err := o.comm.usable(); err != nil { // it may have broken since
		e.finish(o, backend.Status{}, err)
		return
	}
	eager := mode == backend.Standard && len(buf) <= eagerMax
	if to == e.me {
		e.sendSelf(o, eager)
		return
	}
	l := e.links[to]
	if r := o.comm.RankOf(to); o.comm.isGone(r) {
		e.finish(o, backend.Status{}, o.comm.goneFault(r))
		return
	}
	h := wire.Header{Kind: wire.Eager, Context: o.comm.id, Tag: tag, Length: uint64(len(buf))}
	if eager {
		o.state = opQueued
		if l.emit(&h, buf, o) {
			e.finish(o, backend.Status{}, nil)
		} else {
			e.enter(o) // where dropWhere finds it
		}
		return
	}
	e.enter(o)
	o.state = opRequested
	h.Token = o.token
	if l.exposes && len(buf) >= exposeMin {
		e.expose(l, o, &h)
		return
	}
	h.Kind = wire.ReadyToSend
	l.emit(&h, nil, o)
}

// sent is called when a frame of an operation is in the socket.
func (e *engine) sent(l *link, o *op, kind wire.Kind, n int) {
	switch kind {
	case wire.Eager:
		e.finish(o, backend.Status{}, nil)
	case wire.Data:
		if o.at += n; o.at >= o.n {
			e.finish(o, backend.Status{}, nil)
			return
		}
		e.queuePiece(l, o) // behind what others have to say
	}
}

// stream sends the data of a message after its CTS, as much as the socket accepts now.
func (e *engine) stream(l *link, o *op) {
	for range writeMost {
		n, gone := e.piece(l, o)
		if !gone {
			return
		}
		if o.at += n; o.at >= o.n {
			e.finish(o, backend.Status{}, nil)
			return
		}
	}
	e.queuePiece(l, o)
}

func (o *op) next() (wire.Header, []byte) {
	n := min(o.n-o.at, pieceMax)
	return wire.Header{Kind: wire.Data, Token: o.theirs, Offset: uint64(o.at), Length: uint64(n)}, o.buf[o.at : o.at+n]
}

// piece sends the next piece of a message and reports whether it is in the socket.
func (e *engine) piece(l *link, o *op) (int, bool) {
	h, body := o.next()
	return len(body), l.emit(&h, body, o)
}

// queuePiece lets flush send the rest.
func (e *engine) queuePiece(l *link, o *op) {
	h, body := o.next()
	l.queue(&h, body, o)
}

// onReadyToSend handles an RTS for size bytes. addr is where the peer exposes them, 0 if it does not.
func (e *engine) onReadyToSend(l *link, h *wire.Header, size int, addr uint64) error {
	env := match.Env{Ctx: h.Context, Source: int32(l.peer), Tag: h.Tag}
	if n := e.posted.TakePosted(env); n != nil {
		o := n.Owner.(*op)
		if o.foreign(l.peer) {
			e.repost(o)
			return errForeign
		}
		e.take(o, h.Token, size, addr, env)
		return nil
	}
	if e.closing[h.Context] != nil {
		return nil // the sender gets the notice of the closing
	}
	if c := e.comms[h.Context]; c != nil && c.RankOf(l.peer) < 0 {
		return errForeign
	}
	m := e.getMsg()
	m.size, m.token, m.addr = size, h.Token, addr
	e.keep(m, env)
	return nil
}

// take asks for the data of an RTS or, if they are exposed, reads them.
func (e *engine) take(o *op, token uint64, size int, addr uint64, env match.Env) {
	src := int(env.Source)
	if r := o.comm.RankOf(src); r >= 0 && o.comm.isGone(r) { // the message is lost with it
		e.finish(o, backend.Status{}, o.comm.goneFault(r))
		return
	}
	o.state, o.peer, o.env, o.theirs = opTaking, src, env, token
	o.size, o.n, o.at = size, min(size, len(o.buf)), 0
	o.read = false
	e.enter(o)
	if addr != 0 {
		e.readPeer(o, addr)
		return
	}
	e.ask(o, 0)
}

// ask sends the CTS, or with FlagYes the notice that the message has been read.
func (e *engine) ask(o *op, flags uint8) {
	e.links[o.peer].emit(&wire.Header{Kind: wire.ClearToSend, Flags: flags, Token: o.theirs, Length: uint64(o.n), Reply: o.token}, nil, nil)
}

// onClearToSend sends the data that a peer asks for.
func (e *engine) onClearToSend(l *link, h *wire.Header) error {
	o := e.lookup(h.Token, l.peer)
	if o == nil || o.state != opRequested { // taken back since
		return nil
	}
	if h.Length > uint64(len(o.buf)) {
		return fmt.Errorf("clear to send for %d bytes of a message of %d", h.Length, len(o.buf))
	}
	if h.Flags&wire.FlagYes != 0 {
		return e.exposedRead(l, o, h)
	}
	o.state, o.n, o.at, o.theirs = opStreaming, int(h.Length), 0, h.Reply
	e.stream(l, o)
	return nil
}

// onWithdraw drops a message that its sender has cancelled. If a receive has matched it, that is posted
// again, in its old place.
func (e *engine) onWithdraw(l *link, token uint64) {
	var found *msg
	e.arrived.Each(func(n *match.Node) bool {
		if m := n.Owner.(*msg); m.token == token && int(n.Env.Source) == l.peer {
			found = m
			e.arrived.Remove(n)
			return false
		}
		return true
	})
	if found != nil {
		e.putMsg(found)
		return
	}
	for _, m := range e.held {
		if m.token == token && int(m.node.Env.Source) == l.peer {
			m.gone = true
			return
		}
	}
	for _, s := range e.slots {
		if o := s.op; o != nil && o.state == opTaking && o.theirs == token && o.peer == l.peer {
			e.leaveSlot(o)
			e.repost(o)
			return
		}
	}
}

// repost puts a receive back into the queue, before those that were posted after it, or gives it
// what has arrived since.
func (e *engine) repost(o *op) {
	if o.fixed { // of Imrecv: it was for that message alone
		e.finish(o, backend.Status{}, tookBack())
		return
	}
	if n := e.arrived.TakeArrived(o.node.Env); n != nil {
		e.takeMsg(o, n.Owner.(*msg))
		return
	}
	var later []*match.Node
	e.posted.Each(func(n *match.Node) bool {
		if p := n.Owner.(*op); p.order > o.order {
			e.posted.Remove(n)
			later = append(later, n)
		}
		return true
	})
	o.state = opPosted
	e.posted.Push(&o.node)
	for _, n := range later {
		e.posted.Push(n)
	}
}

func tookBack() error {
	return &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the sender canceled the message"}
}

// recv starts a receive. The lock is held.
func (e *engine) recv(o *op, buf []byte, want match.Env) {
	o.buf, o.fixed = buf, false
	o.node.Env, o.node.Owner = want, o
	e.order++
	o.order = e.order
	if n := e.arrived.TakeArrived(want); n != nil {
		e.takeMsg(o, n.Owner.(*msg))
		return
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

// takeMsg gives an arrived message to a receive.
func (e *engine) takeMsg(o *op, m *msg) {
	env, size := m.node.Env, m.size
	switch {
	case m.send != nil:
		s := m.send
		n := copy(o.buf, s.buf)
		e.putMsg(m)
		e.finish(s, backend.Status{}, nil)
		e.received(o, env, size, n)
	case m.token != 0:
		token, addr := m.token, m.addr
		e.putMsg(m)
		e.take(o, token, size, addr, env)
	default:
		n := copy(o.buf, m.buf)
		e.putMsg(m)
		e.received(o, env, size, n)
	}
}

// sendSelf sends a message to this rank itself.
func (e *engine) sendSelf(o *op, eager bool) {
	env := match.Env{Ctx: o.comm.id, Source: int32(e.me), Tag: o.tag}
	if n := e.posted.TakePosted(env); n != nil {
		to, size := n.Owner.(*op), len(o.buf)
		copied := copy(to.buf, o.buf)
		e.finish(o, backend.Status{}, nil)
		e.received(to, env, size, copied)
		return
	}
	m := e.getMsg()
	m.size = len(o.buf)
	if eager {
		m.buf = e.getBuf(m.size)
		copy(m.buf, o.buf)
		e.keep(m, env)
		e.finish(o, backend.Status{}, nil)
		return
	}
	m.send, o.self, o.state = o, m, opRequested
	e.enter(o)
	e.keep(m, env)
}

// Cancel implements backend.Comm.
func (c *comm) Cancel(r *backend.Request) bool {
	e := c.e
	e.mu.Lock()
	defer e.unlock()
	o, ok := r.Impl.(*op) // none any more once it is complete
	return ok && e.cancel(o, r, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "canceled before it matched"})
}

// cancel cancels an operation that has not matched, completing it with err. A send whose CTS has not
// arrived has not matched: the peer gets a notice, and posts its receive again. The lock is held.
func (e *engine) cancel(o *op, r *backend.Request, err error) bool {
	if o.req != r || !r.Active() {
		return false
	}
	switch o.state {
	case opPosted:
	case opQueued:
		if e.links[o.peer].started(o.frame) {
			return false
		}
	case opRequested:
		if o.peer != e.me {
			l, token := e.links[o.peer], o.token
			begun := o.frame == nil || l.started(o.frame)
			e.drop(o, err)
			if begun {
				l.emit(&wire.Header{Kind: wire.Withdraw, Token: token}, nil, nil)
			}
			return true
		}
	default:
		return false
	}
	e.drop(o, err)
	return true
}

// drop ends an operation in any state, without a notice to its peer.
func (e *engine) drop(o *op, err error) {
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
			e.links[o.peer].detach(o)
		}
	case opTaking:
		if l := e.links[o.peer]; l.op == o {
			l.op, l.dst = nil, nil
		}
	}
	e.finish(o, backend.Status{}, err)
}
