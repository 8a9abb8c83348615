package engine

import (
	"bytes"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// A goodbye ends a link. It writes the frames that are left, ends the link for writing, and closes it when the
// other end's system has everything. Until then received bytes are dropped, because a socket that is closed
// with unread bytes discards those it has not sent.
//
// For a rank that is lost for this one, the frames are the rest of the current one and the notice that the rank
// is lost. A rank that was stopped finds the notice when it goes on. Without it, it would declare this rank lost
// because the link ended.
type goodbye struct {
	peer          // has the link and the queue of frames, and keeps nothing of what arrives
	orderly  bool // this rank leaves in good order
	finished bool // the link is ended for writing
	unsent   int
	ticks    int // left; 0: no limit
}

func newGoodbye(p *peer, orderly bool) *goodbye {
	g := &goodbye{peer: peer{e: p.e, rank: p.rank, link: p.link, mem: p.mem, in: p.in}, orderly: orderly}
	g.in.Receiver, g.in.Dst, g.tail = g, nil, &g.first
	return g
}

// takeQueue takes all that is queued for a peer.
func (g *goodbye) takeQueue(p *peer) {
	if p.first != nil {
		g.first, g.tail, g.woff = p.first, p.tail, p.woff
		p.first, p.tail, p.woff = nil, &p.first, 0
	}
}

// unwritten reports whether there is something to be written that the peer may still read.
func (p *peer) unwritten() bool { return p.waits() && (p.mem == nil || !p.mem.PeerEnded()) }

// untaken reports whether the other end does not have everything yet.
func (g *goodbye) untaken() bool { return g.unwritten() || g.link.Unsent() > 0 }

// Begin implements frame.Receiver.
func (g *goodbye) Begin(*frame.Arrival) error { return nil }

// End implements frame.Receiver.
func (g *goodbye) End(*frame.Arrival) error { return nil }

// leaveWith closes the link with a rank, with a notice to it of why it is lost.
func (p *peer) leaveWith(f *backend.Fault) {
	if p.state.Link != membership.Up || p.writeErr != nil {
		p.closeLink()
		return
	}
	e := p.e
	g := newGoodbye(p, false)
	if w := p.first; w != nil && p.started(w) {
		g.queue(w.head, bytes.Clone(w.body), nil)
		g.woff = p.woff
	}
	g.queue(frame.Header{Kind: frame.Lost, Tag: int32(p.rank)}, f.Encode(noticeMax), nil)
	p.link = nil
	p.closeLink()
	g.limit(3 * e.heartbeat.limit) // it has been counting since the other end stopped reading
	e.part(g)
}

// part ends a link with its notice, for at most the heartbeat limit.
func (e *Engine) part(g *goodbye) {
	g.ticks = e.heartbeat.ticks
	if _, over := g.step(); !over {
		e.goodbyes = append(e.goodbyes, g)
	}
}

// step writes as much as there is room for. It reports whether anything moved, and whether the link is
// closed.
func (g *goodbye) step() (moved, over bool) {
	for range drainLost {
		if got, err := g.link.Read(&g.in); !got || err != nil {
			break
		}
	}
	moved = g.flush()
	if g.writeErr == nil && !g.unwritten() {
		g.finish() // it may have to write something itself
		n := g.link.Unsent()
		moved, g.unsent = moved || n != g.unsent, n
		over = !g.untaken()
	}
	if g.ticks--; over || g.writeErr != nil || g.ticks == 0 {
		g.end()
		return true, true
	}
	return moved, false
}

func (g *goodbye) finish() {
	if !g.finished {
		g.finished = true
		g.link.Finish(g.orderly)
	}
}

// end closes the link at once.
func (g *goodbye) end() {
	g.finish()
	g.link.Close()
}

// stepGoodbyes goes on with the goodbyes, and reports whether anything moved. It is called once each tick, and
// more often while this rank leaves.
func (e *Engine) stepGoodbyes() (moved bool) {
	e.goodbyes = slices.DeleteFunc(e.goodbyes, func(g *goodbye) bool {
		did, over := g.step()
		moved = moved || did
		return over
	})
	return moved
}

func (e *Engine) endGoodbyes() {
	for _, g := range e.goodbyes {
		g.end()
	}
	e.goodbyes = nil
}
