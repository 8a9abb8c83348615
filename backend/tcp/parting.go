package tcp

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// This file makes a rank leave a job in which it has no connection with some ranks.

// lingerFor is how long the hub waits for the others to leave before it does.
const lingerFor = 200 * time.Millisecond

// onGoodbye answers a goodbye: from now on this rank forwards nothing through the rank that leaves, which
// may then end.
func (e *engine) onGoodbye(l *link) {
	d := e.demand
	if d == nil {
		return
	}
	if d.hub == e.me {
		e.departed = append(e.departed, l.peer)
	}
	hub := uint32(0)
	if d.hub == e.me {
		hub = 1
	}
	e.rehub()
	e.pass(l, l.peer, viaAck, hub, nil)
}

// onLeft handles the hub's notice that a rank has left. If there is a connection, the goodbye arrives
// there, behind the rank's last messages.
func (e *engine) onLeft(l *link) {
	if l.said || l.dead {
		return
	}
	if l.gone = true; l.fd < 0 {
		e.leftUnseen(l)
	}
}

func (e *engine) leftUnseen(l *link) {
	l.forget()
	l.said, l.dead = true, true
	e.dropLeft(l.peer)
	if e.demand.hub == e.me {
		e.departed = append(e.departed, l.peer)
	}
	e.rehub()
}

// sayGoodbye says goodbye on a link, once.
func (l *link) sayGoodbye() {
	if !l.goodbyeSent {
		l.goodbyeSent = true
		l.emit(&wire.Header{Kind: wire.Goodbye}, nil, nil)
	}
}

// takeLeave says goodbye in a job in which this rank has no connection with some ranks.
//
//  1. Frames that wait for a connection are sent.
//  2. The hub lets the others leave first, for a moment: each new hub costs everybody a connection.
//  3. The goodbye goes to the ranks with a connection. The hub informs the others and acknowledges it;
//     after that, the end of this rank does not matter. The hub itself waits until all others have
//     acknowledged its goodbye, and send nothing more to forward.
func (e *engine) takeLeave() {
	d, start := e.demand, time.Now()
	e.until(start.Add(leaveMost), func() bool {
		for _, l := range e.links {
			if l != nil && !l.dead && !l.said && (l.fresh || l.fd < 0 && l.first != nil) {
				return false
			}
		}
		return true
	})
	others := func(acked bool) bool {
		for r, l := range e.links {
			if l != nil && !l.dead && !l.said && !(acked && d.acked[r]) {
				return false
			}
		}
		return true
	}
	e.until(time.Now().Add(lingerFor), func() bool { return d.hub != e.me || others(false) })
	e.mu.Lock()
	if !e.excluded {
		d.parted = true
		for r, l := range e.links {
			if l != nil && l.wanted && e.losses[r] == nil {
				l.sayGoodbye()
			}
		}
	}
	e.unlock()
	e.until(start.Add(leaveMost), func() bool {
		return d.let || d.hub == e.me && others(true)
	})
}

// until makes progress until done, which is called with the lock held, until the end of the job, and at
// most until end, or for leaveFor without progress.
func (e *engine) until(end time.Time, done func() bool) {
	var p pollset
	for last := time.Now(); ; {
		e.mu.Lock()
		if e.progress() {
			last = time.Now()
		}
		over := e.excluded || e.fault.Load() != nil || done() || time.Now().After(end) || time.Since(last) > leaveFor
		p.reset()
		ready := false
		for _, l := range e.open {
			if l.fd >= 0 && !over {
				ready = l.listen(&p) || ready
			}
		}
		e.unlock()
		if over {
			return
		}
		if !ready {
			p.wait(5 * time.Millisecond)
		}
	}
}
