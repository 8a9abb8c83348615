package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// leaving is how a rank leaves its job:
//
//  1. On demand: frames that wait for a link are sent.
//  2. On demand: the hub lets the others leave first, for a moment: each new hub costs everybody a link.
//  3. The goodbye goes behind everything that was sent. On demand, the hub informs the ranks without a
//     link and acknowledges the goodbye; after that, the end of this rank does not matter. The hub itself
//     waits until all others have acknowledged its goodbye, and send nothing more to forward.
//  4. The engine writes the queued frames, and reads meanwhile: two ranks that leave with full links
//     between them would wait for each other. Then it ends the links for writing.
//  5. The engine waits until the other ends have all written bytes, and drops incoming ones. A socket that
//     is closed with unread bytes, or that receives some later, answers with a reset. The reset discards
//     bytes that have not arrived, and the other end would take this rank for dead.
//
// Without links on demand, steps 1 and 2 come to their end at once. A step that does not come to its end for
// leaveFor without progress, or after leaveMost, is given up.
type leaving struct {
	e     *Engine
	step  int
	start time.Time // of the whole
	begun time.Time // of the step
	moved time.Time // when something moved
}

const (
	leaveQueued = iota
	leaveOthers
	leaveGoodbye
	leaveFlush
	leaveLinks
	leaveDone

	leaveFor  = 3 * time.Second
	leaveMost = 10 * time.Second
	leaveLook = 100 * time.Microsecond // between two looks
	lingerFor = 200 * time.Millisecond // of step 2
)

// leave ends this rank's part of the job.
func (e *Engine) leave() {
	for l := e.newLeaving(); !l.look(); {
		time.Sleep(leaveLook)
	}
	if e.demand != nil {
		e.demand.end()
	}
	close(e.stop)
	e.ticker.Wait()
	e.hangUp()
	if e.cfg.Left != nil {
		e.cfg.Left()
	}
}

func (e *Engine) newLeaving() *leaving {
	now := e.cfg.Now()
	return &leaving{e: e, start: now, begun: now, moved: now}
}

// look goes on with the leaving, and reports whether the rank has left.
func (l *leaving) look() bool {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Now()
	if l.step < leaveLinks && e.progress() || l.step == leaveLinks && e.stepGoodbyes() {
		l.moved = now
	}
	for l.step < leaveDone && (l.ended() || l.late(now)) {
		l.step++
		l.begun, l.moved = now, now
		switch l.step {
		case leaveGoodbye:
			e.sayGoodbyes()
		case leaveLinks:
			e.endLinks()
		case leaveDone:
			e.endGoodbyes()
		}
	}
	return l.step == leaveDone
}

// flush gives what is queued a bounded time to be written.
func (e *Engine) flush() {
	for end := time.Now().Add(leaveFor); time.Now().Before(end); time.Sleep(leaveLook) {
		e.mu.Lock()
		e.progress()
		flushed := e.flushed()
		e.mu.Unlock()
		if flushed {
			return
		}
	}
}

// flushed reports whether all frames are written, except those that wait for a link.
func (e *Engine) flushed() bool {
	return !slices.ContainsFunc(e.open, func(p *peer) bool { return p.link != nil && p.waits() })
}

// late reports whether the step is given up.
func (l *leaving) late(now time.Time) bool {
	e := l.e
	return l.step < leaveFlush && (e.excluded || e.fault.Load() != nil) || l.step == leaveOthers && now.Sub(l.begun) > lingerFor ||
		now.Sub(l.moved) > leaveFor || now.Sub(l.start) > leaveMost
}

// ended reports whether the step has come to its end.
func (l *leaving) ended() bool {
	e, d := l.e, l.e.demand
	switch l.step {
	case leaveQueued:
		return !slices.ContainsFunc(e.peers, func(p *peer) bool {
			return p != nil && !p.dead && !p.said && (p.fresh || p.link == nil && p.first != nil)
		})
	case leaveOthers:
		return d == nil || d.hub != e.me || e.others(false)
	case leaveGoodbye:
		return d == nil || d.let || d.hub == e.me && e.others(true)
	case leaveFlush:
		return e.flushed()
	}
	return len(e.goodbyes) == 0
}

// others reports whether all other ranks have left, or, with acked, have acknowledged this one's goodbye.
func (e *Engine) others(acked bool) bool {
	return !slices.ContainsFunc(e.peers, func(p *peer) bool {
		return p != nil && !p.dead && !p.said && !(acked && p.acked)
	})
}

// sayGoodbyes says goodbye on all links. A rank that is lost for some must not leave in good order for
// others.
func (e *Engine) sayGoodbyes() {
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	if e.excluded {
		return
	}
	e.parted = true
	for r, p := range e.peers {
		if p != nil && p.link != nil && e.losses[r] == nil { // others hear it when their link comes
			p.sayGoodbye()
		}
	}
}

// endLinks ends the engine, and its links for writing.
func (e *Engine) endLinks() {
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.endTransfers()
	e.isClosed = true
	e.endGoodbyes() // of lost ranks
	for _, p := range e.peers {
		if p == nil || p.dead {
			continue
		}
		if p.link != nil {
			e.goodbyes = append(e.goodbyes, newGoodbye(p, !e.excluded))
		}
		p.forget()
		p.dead, p.link = true, nil
		p.over.Store(true)
	}
	e.stepGoodbyes()
	e.wakeOthers()
}

// endTransfers ends the receives by transfer in progress. It waits a little for peers that are copying, and
// keeps the buffers of others from being used again.
func (e *Engine) endTransfers() {
	for _, p := range e.peers {
		if p == nil || p.mem == nil {
			continue
		}
		for i := 0; i < 1000 && p.mem.Receiving(); i++ {
			p.mem.Step(p)
		}
		p.mem.Abandon(p)
	}
}

// onGoodbye acknowledges a goodbye: from now on this rank forwards nothing through the rank that leaves, which
// may then end.
func (e *Engine) onGoodbye(p *peer) {
	d := e.demand
	if d == nil {
		return
	}
	h, list := frame.Header{Kind: frame.Left}, binary.LittleEndian.AppendUint32(nil, uint32(p.rank))
	if d.hub == e.me {
		e.departed = append(e.departed, list...)
		h.Tag = 1
	}
	e.rehub()
	p.emit(h, list, nil)
}

// onLeft handles the notice that ranks have left. If there is a connection with one, its goodbye arrives there,
// behind its last messages.
func (e *Engine) onLeft(p *peer, h *frame.Header, list []byte) error {
	if e.demand == nil || len(list)%4 != 0 {
		return fmt.Errorf("%v, a list of %d bytes", h.Kind, len(list))
	}
	for ; len(list) > 0; list = list[4:] {
		r := binary.LittleEndian.Uint32(list)
		if uint64(r) >= uint64(len(e.peers)) {
			return fmt.Errorf("notice that rank %d of %d has left", r, len(e.peers))
		}
		switch x := e.peers[r]; {
		case x == nil: // p acknowledges this rank's goodbye
			p.acked = true
			e.demand.let = e.demand.let || h.Tag != 0
		case !x.said && !x.dead:
			if x.gone = true; x.link == nil {
				e.leftUnseen(x)
			}
		}
	}
	return nil
}

func (e *Engine) leftUnseen(p *peer) {
	p.forget()
	p.said, p.dead = true, true
	p.over.Store(true)
	e.sweep()
	if e.demand.hub == e.me {
		e.departed = binary.LittleEndian.AppendUint32(e.departed, uint32(p.rank))
	}
	e.rehub()
}

// sayGoodbye says goodbye on a link, behind what is queued. The goodbye does not wait for a link to be confirmed: if
// it is lost with the link, the hub reports that this rank has left.
func (p *peer) sayGoodbye() {
	h := frame.Header{Kind: frame.Goodbye}
	if !p.fresh {
		p.emit(h, nil, nil)
	} else if n, err := p.link.Write(&h, nil, 0); err != nil || n < frame.HeaderSize { // a new link has room for it
		p.again()
	}
}
