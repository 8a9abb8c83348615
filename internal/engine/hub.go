package engine

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/frame"
)

// With connections on demand, the lowest rank that is neither lost nor has left is the hub, and all ranks
// have a connection with it. Notices between two ranks without a connection go that way: that a rank is
// lost or has left, that it has closed or broken a communicator.

// A relayed notice begins with its kind, and the number of a communicator.
const relayHead = 5

// Broken and Closed are relayed as in frames of this kind; a Goodbye of the hub lists ranks that have left.
// viaAck answers a goodbye, with 1 for the number if it is of the hub.
const viaAck = frame.Kind(0xff)

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
	if d.parted {
		for _, p := range e.peers[hub:] {
			if p != nil && p.wanted && !p.said {
				p.sayGoodbye()
			}
		}
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
	var left []int
	for r, x := range e.peers {
		if x != nil && x.said {
			left = append(left, r)
		}
	}
	e.passLeft(p, left)
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

// pass writes a relayed notice to a link.
func (e *Engine) pass(p *peer, to int, kind frame.Kind, id uint32, text []byte) {
	body := binary.LittleEndian.AppendUint32([]byte{byte(kind)}, id)
	body = append(body, text[:min(len(text), noticeMax-relayHead)]...)
	p.emit(frame.Header{Kind: frame.Relay, Context: uint32(to), Tag: int32(e.me)}, body, nil)
}

// onRelay handles a relayed notice, or forwards it.
func (e *Engine) onRelay(p *peer, h *frame.Header, note []byte) error {
	d, to, from := e.demand, int(h.Context), int(h.Tag)
	switch {
	case d == nil:
		return fmt.Errorf("%v in a job that makes all connections at the start", h.Kind)
	case to >= len(e.peers) || from >= len(e.peers) || from == e.me:
		return fmt.Errorf("%v from rank %d to rank %d", h.Kind, from, to)
	case from != p.rank && (p.rank > e.me || to != e.me):
		return fmt.Errorf("%v of rank %d, whose hub it is not", h.Kind, from)
	case len(note) < relayHead:
		return fmt.Errorf("%v of %d bytes", h.Kind, len(note))
	case to != e.me:
		if t := e.peers[to]; !e.left(to) {
			t.emit(frame.Header{Kind: frame.Relay, Context: h.Context, Tag: h.Tag}, slices.Clone(note), nil)
		}
		return nil
	}
	kind, id, text := frame.Kind(note[0]), binary.LittleEndian.Uint32(note[1:]), note[relayHead:]
	switch {
	case kind == frame.Broken:
		e.onBreak(from, id, DecodeFault(text))
	case kind == frame.Closed && len(text) == 0:
		e.onClose(id, from)
	case kind == viaAck && len(text) == 0:
		e.peers[from].acked = true
		d.let = d.let || id != 0
	case kind == frame.Goodbye && len(text)%4 == 0 && from == p.rank:
		for ; len(text) > 0; text = text[4:] {
			if r := binary.LittleEndian.Uint32(text); uint64(r) >= uint64(len(e.peers)) {
				return fmt.Errorf("notice that rank %d of %d has left", r, len(e.peers))
			} else if int(r) != e.me {
				e.onLeft(e.peers[r])
			}
		}
	default:
		return fmt.Errorf("%v from rank %d of unknown kind %d, with %d bytes", h.Kind, from, note[0], len(text))
	}
	return nil
}

// spread sends all ranks the list of those that have left. Once this rank has said goodbye itself, the
// next hub may have too, and wait for the list.
func (e *Engine) spread() {
	list := e.departed
	e.departed = nil
	for r, p := range e.peers {
		if p != nil && (!p.said || e.demand.parted) && !p.dead && e.losses[r] == nil {
			e.passLeft(p, list)
		}
	}
}

func (e *Engine) passLeft(p *peer, list []int) {
	for some := range slices.Chunk(list, (noticeMax-relayHead)/4) {
		var text []byte
		for _, r := range some {
			text = binary.LittleEndian.AppendUint32(text, uint32(r))
		}
		e.pass(p, p.rank, frame.Goodbye, 0, text)
	}
}
