package engine

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// Begin implements frame.Receiver: it decides where the payload of a frame goes.
func (p *peer) Begin(a *frame.Arrival) error {
	p.bad = p.beginFrame(a, &a.Head)
	return p.bad
}

func (p *peer) beginFrame(a *frame.Arrival, h *frame.Header) error {
	e := p.e
	switch h.Kind {
	case frame.Eager:
		if a.Left > EagerMax {
			return fmt.Errorf("an eager message of %d bytes, above %d", a.Left, EagerMax)
		}
		if p.state.Link == membership.Fresh { // a receive that waits for the rest would not end with the link
			return errors.New("a message on a link that is not confirmed")
		}
		env := p.envelope(h)
		o, keep, err := p.match(env)
		switch {
		case o != nil:
			o.peer, o.env = p.rank, env
			e.put(o, opArriving)
			a.Dst = o.buf[:min(a.Left, len(o.buf))]
		case keep:
			m := e.storage.msgs.get()
			m.size, m.buf = a.Left, e.getBuf(a.Left)
			p.msg, a.Dst = m, m.buf
		}
		return err
	case frame.Data:
		o := e.lookup(h.Token, p.rank)
		if o == nil || o.state != opReceiving {
			return nil // given up since
		}
		if h.Offset != uint64(o.at) || a.Left > o.n-o.at || a.Left == 0 && o.n > 0 {
			return fmt.Errorf("%d bytes at %d of a message of which %d of %d are here", a.Left, h.Offset, o.at, o.n)
		}
		p.op, a.Dst = o, o.place(a.Left)
	case frame.Broken, frame.Abort, frame.Lost, frame.Left:
		if a.Left > noticeMax && h.Kind != frame.Left {
			return fmt.Errorf("a notice of %d bytes, above %d", a.Left, noticeMax)
		}
		p.note = append(p.note[:0], make([]byte, a.Left)...)
		a.Dst = p.note
	default:
		if a.Left > 0 {
			return fmt.Errorf("%v with a payload", h.Kind)
		}
	}
	return nil
}

// errDead stops the reading of a link that was given up.
var errDead = errors.New("the link was given up")

// End implements frame.Receiver: it acts on a frame.
func (p *peer) End(a *frame.Arrival) error {
	if p.state.Link == membership.Fresh {
		p.taken()
	}
	p.bad = p.endFrame(&a.Head)
	p.op, p.msg = nil, nil
	if p.bad == nil && p.linkOver() {
		return errDead
	}
	return p.bad
}

// endFrame acts on a frame, whose payload is where beginFrame has put it.
func (p *peer) endFrame(h *frame.Header) error {
	e := p.e
	switch h.Kind {
	case frame.Eager:
		return p.endEager(h)
	case frame.Data:
		if o := p.op; o != nil {
			if o.took(int(h.Length)); o.at == o.n {
				e.received(o, o.env, o.size, o.n)
			}
		}
	case frame.ReadyToSend:
		return e.onReadyToSend(p, h, msgRequested)
	case frame.Expose:
		if p.mem == nil || !p.mem.Valid(h.Token) || h.Reply+h.Length < h.Reply {
			return fmt.Errorf("an exposed message of %d bytes at %#x", h.Length, h.Reply)
		}
		return e.onReadyToSend(p, h, msgExposed)
	case frame.ClearToSend:
		return e.onClearToSend(p, h)
	case frame.Withdraw:
		e.onWithdraw(p, h)
	case frame.Withdrawn:
		if o := e.lookup(h.Token, p.rank); o != nil && o.state == opWithdrawing { // it had no CTS
			e.finish(o, backend.Status{}, o.cause)
		}
	case frame.Broken:
		return e.onNotice(p, h, p.note)
	case frame.Closed:
		return e.onNotice(p, h, nil)
	case frame.Abort:
		e.onAbort(h.Tag, p.note)
	case frame.Lost:
		if h.Tag < 0 || int(h.Tag) >= len(e.peers) {
			return fmt.Errorf("rank %d is lost, of %d", h.Tag, len(e.peers))
		}
		e.onLoss(p.rank, int(h.Tag), backend.DecodeFault(p.note))
	case frame.Goodbye:
		e.membership.Said(p.rank, h.Tag != 0)
	case frame.Left:
		return e.onLeft(p, h, p.note)
	case frame.Heartbeat:
	default:
		return fmt.Errorf("%v, which is not valid here", h.Kind)
	}
	return nil
}

// endEager completes the receive of an eager message, or keeps the message until a receive is posted.
func (p *peer) endEager(h *frame.Header) error {
	e, size := p.e, int(h.Length)
	if o := p.op; o != nil {
		e.received(o, o.env, size, min(size, len(o.buf)))
		return nil
	}
	m := p.msg
	if m == nil {
		return nil
	}
	env := p.envelope(h)
	o, keep, err := p.match(env)
	if keep {
		e.keep(m, env)
		return nil
	}
	if o != nil { // posted while it came
		e.received(o, env, size, copy(o.buf, m.buf))
	}
	e.putMsg(m)
	return err
}
