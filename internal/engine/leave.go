package engine

import (
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
// A step that does not come to its end for leaveFor without progress, or after leaveMost, is given up.
type leaving struct {
	e     *Engine
	step  int
	start time.Time // of the whole
	begun time.Time // of the step
	moved time.Time // when something moved

	links  []Link // of step 5
	unsent int
}

const (
	leaveQueued = iota + 1
	leaveOthers
	leaveGoodbye
	leaveFlush
	leaveUnsent
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
	e.mu.Lock()
	for _, l := range e.links {
		l.Release() // no goroutine sleeps or reads any more
	}
	e.mu.Unlock()
	if e.cfg.Left != nil {
		e.cfg.Left()
	}
}

func (e *Engine) newLeaving() *leaving {
	now := e.cfg.Now()
	l := &leaving{e: e, step: leaveQueued, start: now, begun: now, moved: now}
	if e.demand == nil {
		l.step = leaveGoodbye
	}
	return l
}

// look goes on with the leaving, and reports whether the rank has left.
func (l *leaving) look() bool {
	e := l.e
	e.mu.Lock()
	defer e.unlock()
	now := e.cfg.Now()
	if l.step < leaveUnsent && e.progress() {
		l.moved = now
	}
	for l.step < leaveDone && (l.ended() || l.late(now)) {
		l.step++
		l.begun, l.moved = now, now
		switch l.step {
		case leaveGoodbye:
			l.goodbye()
		case leaveUnsent:
			l.finish()
		case leaveDone:
			for _, link := range l.links {
				link.Close()
			}
		}
	}
	return l.step == leaveDone
}

// flush gives what is queued a bounded time to be written.
func (e *Engine) flush() {
	l := e.newLeaving()
	for l.step = leaveFlush; ; time.Sleep(leaveLook) {
		e.mu.Lock()
		if e.progress() {
			l.moved = e.cfg.Now()
		}
		done := l.ended() || l.late(e.cfg.Now())
		e.unlock()
		if done {
			return
		}
	}
}

// late reports whether the step is given up.
func (l *leaving) late(now time.Time) bool {
	e := l.e
	return l.step < leaveFlush && (e.excluded || e.fault.Load() != nil) || l.step == leaveOthers && now.Sub(l.begun) > lingerFor ||
		now.Sub(l.moved) > leaveFor || now.Sub(l.start) > leaveMost
}

// ended reports whether the step has come to its end.
func (l *leaving) ended() bool {
	e := l.e
	switch l.step {
	case leaveQueued:
		for _, p := range e.peers {
			if p != nil && !p.dead && !p.said && (p.fresh || p.link == nil && p.first != nil) {
				return false
			}
		}
	case leaveOthers:
		return e.demand.hub != e.me || e.others(false)
	case leaveGoodbye:
		if e.demand == nil {
			l.goodbye()
			return true
		}
		return e.demand.let || e.demand.hub == e.me && e.others(true)
	case leaveFlush:
		for _, p := range e.open {
			if p.link != nil && p.waits() {
				return false
			}
		}
	case leaveUnsent:
		unsent := 0
		for _, link := range l.links {
			link.Discard()
			unsent += link.Unsent()
		}
		if unsent != l.unsent {
			l.unsent, l.moved = unsent, e.cfg.Now()
		}
		return unsent == 0
	}
	return true
}

// others reports whether all other ranks have left, or, with acked, have acknowledged this one's goodbye.
func (e *Engine) others(acked bool) bool {
	for r, p := range e.peers {
		if p != nil && !p.dead && !p.said && !(acked && e.demand.acked[r]) {
			return false
		}
	}
	return true
}

// goodbye says goodbye on all links. A rank that is lost for some must not leave in good order for others.
func (l *leaving) goodbye() {
	e := l.e
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	if e.excluded {
		return
	}
	if e.demand != nil {
		e.demand.parted = true
	}
	for r, p := range e.peers {
		if p != nil && p.wanted && e.losses[r] == nil {
			p.sayGoodbye()
		}
	}
}

// finish ends the engine, and its links for writing.
func (l *leaving) finish() {
	e := l.e
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.endTransfers()
	e.isClosed = true
	for _, g := range e.goodbyes {
		g.link.Close()
	}
	e.goodbyes = nil
	for _, p := range e.peers {
		if p == nil || p.dead {
			continue
		}
		p.forget()
		if p.link != nil {
			p.link.Finish(!e.excluded)
			l.links = append(l.links, p.link)
		}
		p.dead, p.link = true, nil
		p.over.Store(true)
	}
	e.wakeOthers()
}

// endTransfers ends the receives by transfer in progress. It waits a little for peers that are copying, and
// keeps the buffers of others from being used again.
func (e *Engine) endTransfers() {
	for range 1000 {
		busy := false
		for _, p := range e.peers {
			if p != nil && p.mem != nil && p.mem.Busy() {
				p.mem.Step(p)
				busy = busy || p.mem.Receiving()
			}
		}
		if !busy {
			return
		}
	}
	for _, p := range e.peers {
		if p != nil && p.mem != nil {
			p.mem.Abandon(p)
		}
	}
}

// onGoodbye answers a goodbye: from now on this rank forwards nothing through the rank that leaves, which
// may then end.
func (e *Engine) onGoodbye(p *peer) {
	d := e.demand
	if d == nil {
		return
	}
	if d.hub == e.me {
		e.departed = append(e.departed, p.rank)
	}
	hub := uint32(0)
	if d.hub == e.me {
		hub = 1
	}
	e.rehub()
	e.pass(p, p.rank, viaAck, hub, nil)
}

// onLeft handles the hub's notice that a rank has left. If there is a connection, the goodbye arrives
// there, behind the rank's last messages.
func (e *Engine) onLeft(p *peer) {
	if p.said || p.dead {
		return
	}
	if p.gone = true; p.link == nil {
		e.leftUnseen(p)
	}
}

func (e *Engine) leftUnseen(p *peer) {
	p.forget()
	p.said, p.dead = true, true
	p.over.Store(true)
	e.dropLeft(p.rank)
	if e.demand.hub == e.me {
		e.departed = append(e.departed, p.rank)
	}
	e.rehub()
}

// sayGoodbye says goodbye on a link, once.
func (p *peer) sayGoodbye() {
	if !p.goodbyeSent {
		p.goodbyeSent = true
		p.emit(frame.Header{Kind: frame.Goodbye}, nil, nil)
	}
}
