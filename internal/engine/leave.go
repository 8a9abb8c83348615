package engine

import (
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/membership"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// leaving is how a rank leaves its job:
//
//  1. On demand: frames that wait for a link are sent.
//  2. On demand: the hub lets the others leave first, for a moment: each new hub costs everybody a link.
//  3. The goodbye goes behind everything that was sent. On demand, the hub informs the ranks without a
//     link and acknowledges the goodbye; after that, the end of this rank does not matter. The hub itself
//     waits until all others have acknowledged its goodbye, and send nothing more to forward.
//  4. The engine writes the queued frames, and reads meanwhile: two ranks that leave with full links
//     between them would wait for each other. It does not wait for room in the memory of a rank that has ended the
//     link, and reads nothing more.
//  5. The engine writes what is still queued, ends the links for writing, and waits until the other ends have all
//     written bytes. It drops incoming ones. A socket that
//     is closed with unread bytes, or that receives some later, answers with a reset. The reset discards
//     bytes that have not arrived, and the other end would take this rank for dead.
//
// Without links on demand, steps 1 and 2 come to their end at once. A step that does not come to its end for
// leaveFor without progress, or after leaveMost, is given up.
type leaving struct {
	e          *Engine
	step, last int
	end        time.Time // of the whole
	begun      time.Time // of the step
	moved      time.Time // when something moved
	moves      int       // Engine.moves then
}

const (
	leaveQueued = iota
	leaveOthers
	leaveGoodbye
	leaveFlush
	leaveLinks

	leaveFor  = 3 * time.Second
	leaveMost = 10 * time.Second
	leaveLook = 100 * time.Microsecond // between two looks in step 5: nothing rings when the other end has the last byte
	lingerFor = 200 * time.Millisecond // of step 2
)

// leave ends this rank's part of the job.
func (e *Engine) leave() error {
	e.crew.Await(wait.NewMember(e.newLeaving(leaveQueued, leaveLinks, leaveMost)))
	if e.demand != nil {
		e.demand.end()
	}
	e.mu.Lock()
	err := e.untaken()
	e.endGoodbyes()
	e.mu.Unlock()
	close(e.stop)
	e.endFlusher()
	e.ticker.Wait()
	e.crew.Shut()
	e.cfg.Sleeper.Close()
	if e.cfg.Left != nil {
		e.cfg.Left()
	}
	return err
}

// untaken returns an error if a goodbye is given up: what it has not written is lost, and what the system has kept as soon
// as the peer sends something.
func (e *Engine) untaken() error {
	for _, g := range e.goodbyes {
		if g.orderly && g.untaken() {
			return backend.Faultf(backend.ErrTimeout, "rank %d (%v) has not taken the last messages to it; they may be lost, and it may take this rank for lost",
				g.rank, e.cfg.Peers[g.rank])
		}
	}
	return nil
}

// newLeaving returns a leaving that does some of the steps.
func (e *Engine) newLeaving(first, last int, most time.Duration) *leaving {
	now := e.cfg.Now()
	return &leaving{e: e, step: first, last: last, end: now.Add(most), begun: now, moved: now}
}

// Ready implements wait.Waiter. Limit finds out.
func (l *leaving) Ready() bool { return false }

// Look implements wait.Waiter.
func (l *leaving) Look() bool { return false }

// Limit implements wait.Waiter. It looks at the leaving. Frames that arrive wake the leader of the crew. A follower waits
// for the next tick, and so does a step that ends by the clock.
func (l *leaving) Limit() (time.Duration, bool) {
	left := !l.look()
	if l.step == leaveLinks {
		return leaveLook, left
	}
	return l.e.heartbeat.every, left
}

// look goes on with the leaving, and reports whether the last step has come to its end.
func (l *leaving) look() bool {
	e := l.e
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Now()
	if l.step < leaveLinks && e.progress() || l.step == leaveLinks && e.stepGoodbyes() || l.moves != e.moves {
		l.moved, l.moves = now, e.moves
	}
	for l.ended() || l.late(now) {
		if l.step == l.last {
			return true
		}
		l.step++
		l.begun, l.moved = now, now
		switch l.step {
		case leaveGoodbye:
			e.sayGoodbyes()
		case leaveLinks:
			e.endLinks()
		}
	}
	return false
}

// late reports whether the step is given up.
func (l *leaving) late(now time.Time) bool {
	e := l.e
	return l.step < leaveFlush && (e.excluded || e.fault.Load() != nil) || l.step == leaveOthers && now.Sub(l.begun) > lingerFor ||
		now.Sub(l.moved) > leaveFor || now.After(l.end)
}

// ended reports whether the step has come to its end.
func (l *leaving) ended() bool {
	e := l.e
	switch l.step {
	case leaveQueued:
		return !slices.ContainsFunc(e.peers, func(p *peer) bool {
			return p != nil && !p.linkOver() && !p.state.Over() && (p.state.Link == membership.Fresh || p.link == nil && p.first != nil)
		})
	case leaveOthers:
		return e.membership.MayPart()
	case leaveGoodbye:
		return e.membership.MayEnd()
	case leaveFlush:
		return !slices.ContainsFunc(e.open, func(p *peer) bool { return p.link != nil && p.unwritten() })
	}
	return len(e.goodbyes) == 0
}

// sayGoodbyes says goodbye on all links. A rank that is lost for some must not leave in good order for
// others.
func (e *Engine) sayGoodbyes() {
	for _, c := range e.comms {
		c.closed.Store(true)
	}
	if !e.excluded {
		e.membership.Part()
	}
}

// endLinks ends the engine, and its links for writing.
func (e *Engine) endLinks() {
	e.end(&backend.Fault{Sentinel: backend.ErrClosed, Text: "the job was left"})
	e.endTransfers()
	e.endGoodbyes() // of lost ranks
	for _, p := range e.peers {
		if p == nil || p.linkOver() {
			continue
		}
		if p.link != nil {
			p.limit(max(leaveMost, 3*e.heartbeat.limit)) // the leaving ends first, and says what was not taken
			g := newGoodbye(p, !e.excluded)
			if p.state.Link == membership.Up && p.writeErr == nil { // otherwise only notices are queued
				g.takeQueue(p)
			}
			e.goodbyes = append(e.goodbyes, g)
		}
		p.discardFrames()
		p.link = nil
		p.hasLeft.Store(true)
	}
	e.membership.End()
	e.stepGoodbyes()
	e.wakeReady()
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
