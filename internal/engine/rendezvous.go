package engine

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/memlink"
)

// A long or synchronous message uses a rendezvous, in one of two ways:
//
//	sender                              receiver
//	ReadyToSend: length, token       →
//	                                 ←  ClearToSend: bytes wanted, token
//	Data, Data, …                    →
//
//	Expose: length, address          →  both copy chunks from process to process (memlink.Transfer)
//
// If the kernel does not copy the memory of one of the two, the receiver sends a CTS instead.
//
// A sender cancels a message by Withdraw before it has its CTS:
//
//	Withdraw: token                  →  drops the message, unless it has matched
//	                                 ←  Withdrawn: token
//
// The receiver decides: if its CTS arrives before Withdrawn, the message had matched, and is sent. A sender whose time is
// over before it knows the answer gives the message up, and sends Withdraw once more, with tag 1. If the message had
// matched, its receive ends.
//
// A sender takes an exposed message back in the memory of both.

// How much is packed at a time: as much as the peer can take out of a ring meanwhile, or what is worth a system
// call.
const (
	packMemory = 32 << 10
	packSocket = 256 << 10
)

// expose sends an RTS for a message that is copied from process to process, and reports whether it could.
func (e *Engine) expose(p *peer, o *op, h frame.Header) bool {
	e.put(o, opExposed)
	o.transfer.Owner, o.transfer.Sender = o, o.token
	addr, ok := p.mem.Announce(&o.transfer, o.buf)
	if !ok {
		return false
	}
	h.Kind, h.Token, h.Reply = frame.Expose, o.transfer.Token(), addr
	p.emit(h, nil, o)
	return true
}

// sent is called when a frame of an operation is written.
func (e *Engine) sent(p *peer, o *op, kind frame.Kind, n int) {
	if kind == frame.ReadyToSend || kind == frame.Expose {
		return
	}
	if o.at += n; kind == frame.Data && o.at < o.n {
		h, body := o.piece()
		p.queue(h, body, o) // behind other frames
		return
	}
	e.finish(o, backend.Status{}, nil)
}

// piece returns the next piece of a message.
func (o *op) piece() (frame.Header, []byte) {
	n := min(o.n-o.at, pieceMax)
	body := o.buf[o.at : o.at+n]
	if o.parts != nil && n > 0 {
		size := packSocket
		if o.comm.e.peers[o.peer].mem != nil {
			size = packMemory
		}
		n = min(n, o.parts.Pack(o.buf[:min(len(o.buf), size)])) // always to the same place, which stays in the cache
		body = o.buf[:n]
	}
	return frame.Header{Kind: frame.Data, Token: o.theirs, Offset: uint64(o.at), Length: uint64(n)}, body
}

// onReadyToSend handles an RTS: kind says how its data come.
func (e *Engine) onReadyToSend(p *peer, h *frame.Header, kind uint8) error {
	size := int(h.Length)
	env := p.envelope(h)
	o, keep, err := p.match(env)
	switch {
	case o != nil:
		e.take(o, kind, h.Token, h.Reply, size, env) // or it stays posted
	case keep:
		if kind == msgExposed && e.arrived.Len() >= e.stale {
			e.discardRevoked()
		}
		m := e.storage.msgs.get()
		m.size, m.kind, m.token, m.addr = size, kind, h.Token, h.Reply
		e.keep(m, env)
	}
	return err
}

// discardRevoked drops the exposed messages that their senders have revoked, of which they send no notice. It looks at the
// queue again when that is twice as long as what is left.
func (e *Engine) discardRevoked() {
	var revoked []*msg
	e.arrived.Each(func(n *match.Node) bool {
		if m := n.Owner.(*msg); m.kind == msgExposed && e.peers[n.Env.Source].mem.Revoked(m.token) {
			revoked = append(revoked, m)
		}
		return true
	})
	for _, m := range revoked {
		e.discard(m)
	}
	e.stale = max(2*e.arrived.Len(), staleMin)
}

// take asks for the data of an RTS, or starts to copy them. It returns false if the sender has withdrawn the message.
func (e *Engine) take(o *op, kind uint8, token, addr uint64, size int, env match.Env) bool {
	src := int(env.Source)
	p := e.peers[src]
	if r := o.comm.RankOf(src); o.comm.isGone(r) { // the message is lost with it
		if kind == msgExposed && p.mem.Revoked(token) {
			return false
		}
		e.finish(o, backend.Status{}, o.comm.goneFault(r))
		return true
	}
	o.peer, o.env, o.tag, o.theirs = src, env, env.Tag, token
	o.size, o.n, o.at = size, min(size, len(o.buf)), 0
	if kind == msgExposed {
		o.transfer.Owner = o
		if !p.mem.Accept(&o.transfer, token, addr, o.buf[:o.n]) {
			return false
		}
		e.put(o, opCopying)
		return true
	}
	e.ask(p, o)
	return true
}

// ask sends a CTS.
func (e *Engine) ask(p *peer, o *op) {
	e.put(o, opReceiving)
	p.emit(frame.Header{Kind: frame.ClearToSend, Token: o.theirs, Length: uint64(o.n), Reply: o.token}, nil, nil)
}

// Sent implements memlink.Completer.
func (p *peer) Sent(t *memlink.Transfer) { p.e.finish(t.Owner.(*op), backend.Status{}, nil) }

// Received implements memlink.Completer.
func (p *peer) Received(t *memlink.Transfer, err error) {
	if o := t.Owner.(*op); err == memlink.ErrRefused {
		o.theirs = t.Sender
		p.e.ask(p, o)
	} else if err != nil {
		p.e.finish(o, backend.Status{}, err)
	} else {
		p.e.received(o, o.env, o.size, o.n)
	}
}

// Withdrawn implements memlink.Completer. The notice of why a sender gives up comes behind.
func (p *peer) Withdrawn(t *memlink.Transfer) error {
	return t.Owner.(*op).ended()
}

// onClearToSend sends the data that a peer asks for.
func (e *Engine) onClearToSend(p *peer, h *frame.Header) error {
	o := e.lookup(h.Token, p.rank)
	if o == nil || o.state != opRequested && o.state != opWithdrawing && (o.state != opExposed || !p.mem.TakeRefusal(&o.transfer)) { // taken back since
		return nil
	}
	if h.Length > uint64(len(o.buf)) {
		return fmt.Errorf("clear to send for %d bytes of a message of %d", h.Length, len(o.buf))
	}
	if o.frame != nil {
		return errors.New("clear to send for a message that is not announced")
	}
	o.n, o.at, o.theirs = int(h.Length), 0, h.Reply
	e.put(o, opStreaming)
	piece, body := o.piece()
	if p.emit(piece, body, o) {
		e.sent(p, o, frame.Data, len(body))
	}
	return nil
}

// onWithdraw drops a message that its sender cancels, unless it has matched, and answers. If the sender has given the
// message up, it ends the message's receive.
func (e *Engine) onWithdraw(p *peer, h *frame.Header) {
	if h.Tag != 0 {
		for _, s := range e.slots {
			if o := s.op; o != nil && o.state == opReceiving && o.theirs == h.Token && o.peer == p.rank {
				e.finish(o, backend.Status{}, backend.TookBack)
				return
			}
		}
		return
	}
	sent := func(m *msg) bool {
		return m.kind == msgRequested && m.token == h.Token && int(m.node.Env.Source) == p.rank
	}
	e.arrived.Each(func(n *match.Node) bool {
		if m := n.Owner.(*msg); sent(m) {
			e.discard(m)
			return false
		}
		return true
	})
	for _, m := range e.held {
		m.gone = m.gone || sent(m)
	}
	p.emit(frame.Header{Kind: frame.Withdrawn, Token: h.Token}, nil, nil)
}

// unpacks reports whether a message that arrives is unpacked piece by piece. The beginning of one that is too
// long is not.
func (o *op) unpacks() bool { return o.parts != nil && o.size <= len(o.buf) }

// place returns where the next n bytes of a message go: behind those that are not unpacked yet, if it is unpacked.
func (o *op) place(n int) []byte {
	if o.unpacks() {
		return o.buf[o.whole : o.whole+n]
	}
	return o.buf[o.at : o.at+n]
}

// took notes that n bytes are at their place.
func (o *op) took(n int) {
	o.at += n
	if o.unpacks() {
		n += o.whole
		o.whole = copy(o.buf, o.buf[o.parts.Unpack(o.buf[:n]):n])
	}
}
