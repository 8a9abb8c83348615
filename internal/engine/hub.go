package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// With connections on demand, the lowest rank that is neither lost nor has left is the hub, and all ranks
// have a connection with it. Notices between two ranks without a connection go that way: that a rank is
// lost or has left, that it has closed or broken a communicator.

// rehub determines the hub again after a rank has been lost or has left. All ranks connect to a new hub
// and repeat their notices: those that the old hub was about to forward may be lost with it.
func (e *Engine) rehub() {
	d := e.demand
	if d == nil || e.isClosed {
		return
	}
	hub := d.hub
	for hub < e.me && (e.losses[hub] != nil || e.peers[hub].said) {
		hub++
	}
	if hub == d.hub {
		return
	}
	d.hub, d.alone, d.wide = hub, 0, 1
	if hub == e.me { // most connect by themselves, and are greeted then
		for _, p := range e.peers[hub+1:] {
			if !p.said && !d.want(p) && !p.dead {
				e.greet(p)
			}
		}
	} else {
		p := e.peers[hub]
		e.need(p)
		e.greet(p)
	}
	for _, c := range e.comms {
		c.notices(func(kind frame.Kind, body []byte) { c.broadcast(kind, body, unlinked) })
	}
}

// greet sends a rank, the new hub or a rank that connects to this hub, the losses and the ranks that
// have left.
func (e *Engine) greet(p *peer) {
	for _, r := range e.lostInOrder {
		if r != p.rank {
			e.sendLost(p, r)
		}
	}
	var left []byte
	for r, x := range e.peers {
		if x != nil && x.said {
			left = binary.LittleEndian.AppendUint32(left, uint32(r))
		}
	}
	if left != nil {
		p.emit(frame.Header{Kind: frame.Left}, left, nil)
	}
}

// judges reports whether this rank may declare a rank lost because no process listens at its address
// any more. It may if the rank is the hub, or this rank is, and all earlier hubs have ended: then no
// notice that the rank has left can still arrive.
func (e *Engine) judges(rank int) bool {
	d := e.demand
	if rank != d.hub && d.hub != e.me {
		return false
	}
	for _, p := range e.peers[:d.hub] {
		if !p.dead {
			return false
		}
	}
	return true
}

// askMore is called once each tick. While this rank has no connection to the hub nor to any rank that
// could be the next hub, it asks 2, 4, 8, … of these for one. Otherwise the ranks of a failed machine
// would be found lost one after the other, each after its own limit. So the lowest live rank finds out
// about all ranks below it at the same time, and the others learn it from that rank.
func (d *demand) askMore() {
	e := d.e
	if d.hub == e.me || e.isClosed {
		return
	}
	for _, p := range e.peers[d.hub:e.me] {
		if p.link != nil && !p.said {
			d.alone, d.wide = 0, 1
			return
		}
	}
	if d.alone++; d.alone < comeTicks {
		return
	}
	d.alone = 0
	d.wide *= 2
	n := d.wide
	for _, p := range e.peers[d.hub:e.me] {
		if n == 0 {
			break
		}
		if !p.dead && !p.said && e.losses[p.rank] == nil {
			e.need(p)
			n--
		}
	}
}

// sendLost sends one rank the notice of a loss.
func (e *Engine) sendLost(p *peer, rank int) {
	body := EncodeFault(e.losses[rank])
	p.emit(frame.Header{Kind: frame.Lost, Tag: int32(rank)}, body, nil)
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
		if !e.left(to) {
			e.peers[to].emit(frame.Header{Kind: h.Kind, Context: h.Context, Tag: h.Tag}, bytes.Clone(text), nil)
		}
	case h.Kind == frame.Broken:
		e.onBreak(from, h.Context, DecodeFault(text))
	default:
		e.onClose(h.Context, from)
	}
	return nil
}

// spread sends all ranks the list of those that have left. Once this rank has said goodbye itself, the
// next hub may have too, and wait for the list.
func (e *Engine) spread() {
	list := e.departed
	e.departed = nil
	for r, p := range e.peers {
		if p != nil && (!p.said || e.parted) && !p.dead && e.losses[r] == nil {
			p.emit(frame.Header{Kind: frame.Left}, list, nil)
		}
	}
}
