package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// With connections on demand, the lowest rank that is neither lost nor has left is the hub, and all ranks
// have a connection with it. Notices between two ranks without a connection go that way: that a rank is
// lost or has left, that it has closed or broken a communicator.

// The kinds of a relayed notice: its first byte, before the communicator's number and the rest.
const (
	viaBroken = byte(wire.Broken)  // as the frame does
	viaClosed = byte(wire.Closed)  // as the frame does
	viaLeft   = byte(wire.Goodbye) // of the hub: these ranks have left
	viaAck    = byte(wire.Ack)     // the answer to a goodbye; with 1 for the number, of the hub
)

const relayHead = 5 // bytes before what belongs to the kind

// rehub determines the hub again after a rank has been lost or has left. All ranks connect to a new hub
// and repeat their notices: those that the old hub was about to forward may be lost with it.
func (e *engine) rehub() {
	d := e.demand
	if d == nil || e.isClosed {
		return
	}
	hub := d.hub
	for hub < e.me && (e.losses[hub] != nil || e.links[hub].said) {
		hub++
	}
	if hub == d.hub {
		return
	}
	relayed := make([]bool, len(e.links)) // ranks that get this rank's notices through the hub
	for r, l := range e.links {
		relayed[r] = l != nil && !l.wanted && !l.dead && !l.said
	}
	d.hub, d.alone, d.wide = hub, 0, 1
	if hub == e.me { // most connect by themselves, and are greeted then
		for _, l := range e.links[hub+1:] {
			if !l.said && !d.want(l) && !l.dead {
				e.greet(l)
			}
		}
	} else {
		l := e.links[hub]
		e.need(l)
		e.greet(l)
	}
	if d.parted {
		for _, l := range e.links[hub:] {
			if l != nil && l.wanted && !l.said {
				l.sayGoodbye()
			}
		}
	}
	for _, c := range e.comms {
		c.resend(false, relayed)
	}
	for _, c := range e.closing {
		c.resend(true, relayed)
	}
}

// greet sends a rank, the new hub or a rank that connects to this hub, the losses and the ranks that
// have left.
func (e *engine) greet(l *link) {
	for _, r := range e.lostInOrder {
		if r != l.peer {
			e.sendLost(l, r)
		}
	}
	var left []int
	for r, x := range e.links {
		if x != nil && x.said {
			left = append(left, r)
		}
	}
	e.passLeft(l, left)
}

// resend repeats a communicator's notices to the members that got them through a hub that has ended.
func (c *comm) resend(closed bool, relayed []bool) {
	f := c.brk.Load()
	for r, w := range c.World {
		if r == c.rank || !relayed[w] {
			continue
		}
		if f != nil {
			c.sendNotice(w, wire.Broken, encodeFault(f))
		}
		if closed && !c.isWorld {
			c.sendNotice(w, wire.Closed, nil)
		}
	}
}

// judges reports whether this rank may declare a rank lost because no process listens at its address
// any more. It may if the rank is the hub, or this rank is, and all earlier hubs have ended: then no
// notice that the rank has left can still arrive.
func (e *engine) judges(rank int) bool {
	d := e.demand
	if rank != d.hub && d.hub != e.me {
		return false
	}
	for _, l := range e.links[:d.hub] {
		if !l.dead {
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
	for _, l := range e.links[d.hub:e.me] {
		if l.fd >= 0 && !l.said {
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
	for _, l := range e.links[d.hub:e.me] {
		if n == 0 {
			break
		}
		if !l.dead && !l.said && e.losses[l.peer] == nil {
			e.need(l)
			n--
		}
	}
}

// sendLost sends one rank the notice of a loss.
func (e *engine) sendLost(l *link, rank int) {
	body := encodeFault(e.losses[rank])
	l.emit(&wire.Header{Kind: wire.Lost, Tag: int32(rank), Length: uint64(len(body))}, body, nil)
}

// pass writes a relayed notice to a link.
func (e *engine) pass(l *link, to int, kind byte, id uint32, text []byte) {
	body := binary.LittleEndian.AppendUint32([]byte{kind}, id)
	body = append(body, text[:min(len(text), noticeMax-relayHead)]...)
	l.emit(&wire.Header{Kind: wire.Relay, Context: uint32(to), Tag: int32(e.me), Length: uint64(len(body))}, body, nil)
}

// relay sends a rank a notice through the hub.
func (e *engine) relay(to int, kind wire.Kind, id uint32, text []byte) {
	if d := e.demand; d != nil && d.hub != e.me {
		e.pass(e.links[d.hub], to, byte(kind), id, text)
	}
}

// onRelay handles a relayed notice, or forwards it.
func (e *engine) onRelay(l *link, h *wire.Header, note []byte) error {
	d, to, from := e.demand, int(h.Context), int(h.Tag)
	switch {
	case d == nil:
		return fmt.Errorf("%v in a job that makes all connections at the start", h.Kind)
	case to >= len(e.links) || from >= len(e.links) || from == e.me:
		return fmt.Errorf("%v from rank %d to rank %d", h.Kind, from, to)
	case from != l.peer && (l.peer > e.me || to != e.me):
		return fmt.Errorf("%v of rank %d, whose hub it is not", h.Kind, from)
	case len(note) < relayHead:
		return fmt.Errorf("%v of %d bytes", h.Kind, len(note))
	case to != e.me:
		if t := e.links[to]; !e.left(to) {
			t.emit(&wire.Header{Kind: wire.Relay, Context: h.Context, Tag: h.Tag, Length: uint64(len(note))}, slices.Clone(note), nil)
		}
		return nil
	}
	kind, id, text := note[0], binary.LittleEndian.Uint32(note[1:]), note[relayHead:]
	switch {
	case kind == viaBroken:
		e.onBreak(from, id, decodeFault(text))
	case kind == viaClosed && len(text) == 0:
		e.onClose(id, from)
	case kind == viaAck && len(text) == 0:
		d.acked[from] = true
		d.let = d.let || id != 0
	case kind == viaLeft && len(text)%4 == 0 && from == l.peer:
		for ; len(text) > 0; text = text[4:] {
			if r := binary.LittleEndian.Uint32(text); uint64(r) >= uint64(len(e.links)) {
				return fmt.Errorf("notice that rank %d of %d has left", r, len(e.links))
			} else if int(r) != e.me {
				e.onLeft(e.links[r])
			}
		}
	default:
		return fmt.Errorf("%v from rank %d of unknown kind %d, with %d bytes", h.Kind, from, kind, len(text))
	}
	return nil
}

// spread sends all ranks the list of those that have left. Once this rank has said goodbye itself, the
// next hub may have too, and wait for the list.
func (e *engine) spread() {
	list := e.departed
	e.departed = nil
	for r, l := range e.links {
		if l != nil && (!l.said || e.demand.parted) && !l.dead && e.losses[r] == nil {
			e.passLeft(l, list)
		}
	}
}

func (e *engine) passLeft(l *link, list []int) {
	for some := range slices.Chunk(list, (noticeMax-relayHead)/4) {
		var text []byte
		for _, r := range some {
			text = binary.LittleEndian.AppendUint32(text, uint32(r))
		}
		e.pass(l, l.peer, viaLeft, 0, text)
	}
}
