package tcp

import (
	"time"

	"github.com/cohort-hpc/cohort/internal/wire"
)

var heartbeat = wire.Header{Kind: wire.Heartbeat}

// Signs of life. A connection says when its peer's process ends, and nothing when the peer is
// stopped, or its machine or the network is gone.

// HeartbeatDefault is how long a rank may be silent before it is taken for lost, and HeartbeatMin the
// shortest such time.
const (
	HeartbeatDefault = 10 * time.Second
	HeartbeatMin     = 100 * time.Millisecond
)

// life says when a silent rank is lost. Time is counted in ticks of this rank: while it is itself
// stopped, or the machine suspended, or the clock set, there are none. What it owes the others it counts in
// ticks that have been due: one that gets little of its processor misses most, and is heard all the same.
type life struct {
	limit time.Duration // below 0: none
	every time.Duration // between two ticks
	ticks int           // of limit
	reach int           // ticks in which a rank that is asked for a connection is to answer
	beat  int           // ticks after which a link that has had nothing to carry carries a heartbeat
}

func newLife(limit time.Duration) life {
	if limit == 0 {
		limit = HeartbeatDefault
	}
	l := life{limit: limit, every: tickEvery}
	if limit < 0 { // the others may have a limit
		limit = HeartbeatDefault
	} else {
		l.every = min(tickEvery, limit/10)
	}
	l.ticks = int(limit / l.every)
	l.reach = int(max(limit, reachLeast) / l.every)
	l.beat = max(1, l.ticks/4)
	return l
}

// bound has the system give a connection up whose data nobody acknowledges: where it can, and later
// than the heartbeats would, which know more.
func (v *life) bound(fd int) {
	if v.limit > 0 {
		sockLimit(fd, v.limit+v.limit/2)
	}
}

// beat is called once each tick: it sends heartbeats and looks for ranks that are silent. The
// leader, who sleeps until a socket has something to read, reads those of the others.
func (e *engine) beat() {
	e.mu.Lock()
	defer e.unlock()
	if e.isClosed {
		return
	}
	now := time.Now()
	due := max(1, int(now.Sub(e.ticked)/e.life.every))
	e.ticked = now
	for _, l := range e.open {
		if l.fd < 0 || l.said {
			continue
		}
		if l.mute += due; l.spoke {
			l.mute, l.spoke = due-1, false // as far as is known
		}
		if l.mute >= e.life.beat && !l.waits() && !l.fresh { // what waits is as good a sign
			sign := heartbeat
			l.emit(&sign, nil, nil)
			l.mute, l.spoke = 0, false
		}
		if l.quiet++; l.received {
			l.quiet, l.received = 0, false
		}
		most := e.life.ticks
		if l.fresh {
			most = e.life.reach
		}
		if l.quiet <= most || e.life.limit < 0 {
			continue
		}
		l.move() // what has come and was not read counts
		if l.quiet = 0; !l.received && l.fd >= 0 && !l.said {
			e.suspect(l.peer, "rank %d (%v) was silent for %v", l.peer, e.peers[l.peer], e.life.limit)
		}
	}
	e.sendGoodbyes()
	e.giveUpWaiting()
	if e.lossesPending() {
		e.handleLosses()
	}
}
