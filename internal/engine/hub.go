package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// host carries out what the membership machine decides. The lock is held.
type host struct{ *Engine }

func (h host) Ask(rank int, pause bool) {
	p, wait := h.peers[rank], time.Duration(0)
	if pause {
		wait = attemptPause
	}
	if !p.trying {
		p.trying = true
		h.demand.try(p, wait)
	}
}

func (h host) Begin(rank int) { h.peers[rank].sayEnded() }

func (h host) First(rank int) { h.peers[rank].write(frame.Header{Kind: frame.Heartbeat}) }

// write writes a frame on a new link, which has room for it.
func (p *peer) write(h frame.Header) {
	if n, err := p.link.Write(&h, nil, 0); err != nil || n < frame.HeaderSize {
		p.writeFailed(cmp.Or(err, io.ErrShortWrite))
	}
}

func (h host) Send(rank int, n membership.Notice) {
	if p := h.peers[rank]; n.Kind == membership.Goodbye && p.state.Link == membership.Fresh {
		head, _ := h.frame(n)
		p.write(head)
	} else {
		head, body := h.frame(n)
		p.emit(head, body, nil)
	}
}

// frame returns the frame of a notice.
func (e *Engine) frame(n membership.Notice) (h frame.Header, body []byte) {
	switch n.Kind {
	case membership.Goodbye:
		if h.Kind = frame.Goodbye; n.Hub {
			h.Tag = 1
		}
	case membership.IsLost:
		h.Kind, h.Tag = frame.Lost, int32(n.Ranks[0])
		body = e.losses[n.Ranks[0]].Encode(noticeMax)
	case membership.HaveLeft:
		if h.Kind = frame.Left; n.Hub {
			h.Tag = 1
		}
		for _, r := range n.Ranks {
			body = binary.LittleEndian.AppendUint32(body, uint32(r))
		}
	}
	return h, body
}

func (h host) Suspect(rank int, why membership.Why) {
	p, info := h.peers[rank], h.cfg.Peers[rank]
	if i := h.local(rank); i >= 0 && why == membership.NoGoodbye {
		if f := h.cfg.Board.Lost(i); f != nil { // its notice has found no room
			h.due = append(h.due, loss{rank, f})
			return
		}
	}
	switch {
	case why == membership.NoGoodbye && p.lastErr == io.EOF:
		h.suspect(rank, "rank %d (%v) ended without closing its communicator", rank, info)
	case why == membership.NoGoodbye:
		h.suspect(rank, "lost the connection to rank %d (%v): %v", rank, info, p.lastErr)
	case why == membership.Unconfirmed:
		h.suspect(rank, "rank %d (%v) cannot be reached: links with it end before they are confirmed: %v", rank, info, p.lastErr)
	case why == membership.Unreachable:
		h.suspect(rank, "rank %d (%v) cannot be reached: %v", rank, info, p.lastErr)
	default:
		h.suspect(rank, "rank %d (%v) could not be reached for %v: %v%s", rank, info, max(h.heartbeat.limit, reachLeast), cmp.Or(p.lastErr, errNoAnswer), p.stopped())
	}
}

var errNoAnswer = errors.New("no answer")

func (h host) HasLeft(rank int) {
	p := h.peers[rank]
	if p.link == nil {
		p.discardFrames()
	}
	p.hasLeft.Store(true)
	h.sweep()
}

func (h host) Moved() {
	for _, c := range h.comms {
		c.notices(func(kind frame.Kind, body []byte) { c.broadcast(kind, body, unlinked) })
	}
}

// onLeft handles the notice that ranks have left.
func (e *Engine) onLeft(p *peer, h *frame.Header, list []byte) error {
	if e.demand == nil || len(list)%4 != 0 {
		return fmt.Errorf("%v, a list of %d bytes", h.Kind, len(list))
	}
	n := membership.Notice{Kind: membership.HaveLeft, Hub: h.Tag != 0}
	for ; len(list) > 0; list = list[4:] {
		r := binary.LittleEndian.Uint32(list)
		if uint64(r) >= uint64(len(e.peers)) {
			return fmt.Errorf("notice that rank %d of %d has left", r, len(e.peers))
		}
		n.Ranks = append(n.Ranks, int(r))
	}
	e.membership.Told(p.rank, n)
	return nil
}

// onNotice handles a notice that a communicator is broken or closed, or forwards it. Only the hub sends notices
// of other ranks.
func (e *Engine) onNotice(p *peer, h *frame.Header, text []byte) error {
	from, to := p.rank, e.me
	if h.Tag != 0 {
		from, to = int(uint32(h.Tag)/frame.MaxRanks), int(uint32(h.Tag)%frame.MaxRanks)
	}
	switch {
	case to >= len(e.peers) || from >= len(e.peers) || from == e.me || h.Tag != 0 && e.demand == nil:
		return fmt.Errorf("%v from rank %d to rank %d", h.Kind, from, to)
	case from != p.rank && (p.rank > e.me || to != e.me):
		return fmt.Errorf("%v of rank %d, whose hub it is not", h.Kind, from)
	case to != e.me:
		if !e.hasLeft(to) {
			e.peers[to].emit(frame.Header{Kind: h.Kind, Context: h.Context, Tag: h.Tag}, bytes.Clone(text), nil)
		}
	case h.Kind == frame.Broken:
		e.onEnd(from, h.Context, backend.DecodeFault(text))
	default:
		e.onEnd(from, h.Context, nil)
	}
	return nil
}
