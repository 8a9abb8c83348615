package engine

import (
	"bytes"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// A goodbye ends a link with a rank that is lost for this one: it sends the rest of the current frame, and
// the notice that the rank is lost. A rank that was stopped finds the notice when it goes on. Without it,
// it would declare this rank lost because the link ended.
type goodbye struct {
	link   Link // what arrives on it is ignored
	frames []out
	off    int // bytes of the first that are written
	ticks  int // left
}

// leaveWith closes the link with a rank, with a notice to it of why it is lost.
func (p *peer) leaveWith(f *backend.Fault) {
	if p.dead || p.link == nil || p.fresh || p.broken != nil {
		p.cut()
		return
	}
	e := p.e
	g := &goodbye{link: p.link, ticks: e.life.ticks}
	if w := p.first; w != nil && p.woff > 0 {
		g.frames, g.off = append(g.frames, out{head: w.head, body: bytes.Clone(w.body)}), p.woff
	}
	body := EncodeFault(f)
	g.frames = append(g.frames, out{head: frame.Header{Kind: frame.Lost, Tag: int32(p.rank), Length: uint64(len(body))}, body: body})
	p.link = nil
	p.cut()
	if e.life.limit > 0 {
		g.link.Limit(3 * e.life.limit) // it has been counting since the other end stopped reading
	}
	if !g.said() {
		e.goodbyes = append(e.goodbyes, g)
	}
}

// said writes as much as there is room for, and reports whether the link is closed. It is closed when the
// other end's system has everything. Until then received bytes are dropped, because a socket that is
// closed with unread bytes discards those it has not sent.
func (g *goodbye) said() bool {
	l := g.link
	l.Discard()
	var err error
	if l.Holds() {
		_, err = l.Flush()
	}
	for err == nil && len(g.frames) > 0 {
		w := &g.frames[0]
		g.off, err = l.Write(&w.head, w.body, g.off)
		if g.off < frame.HeaderSize+len(w.body) {
			break
		}
		g.frames, g.off = g.frames[1:], 0
	}
	if g.ticks--; g.ticks > 0 && err == nil && (len(g.frames) > 0 || l.Holds() || l.Unsent() > 0) {
		return false
	}
	l.Close()
	return true
}

// sendGoodbyes is called once each tick.
func (e *Engine) sendGoodbyes() {
	e.goodbyes = slices.DeleteFunc(e.goodbyes, (*goodbye).said)
}
