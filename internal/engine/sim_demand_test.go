package engine

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// A simulation with links on demand: attempts to make a link take time, fail, and make links that end before
// both ends have confirmed them.

// simEvent is something that happens at a rank after a while, or in the network (rank -1).
type simEvent struct {
	due  time.Time
	rank int
	do   func()
}

// at lets something happen at a rank after a delay, or later if the rank is stopped then. If the rank is dead it
// does not happen.
func (s *sim) at(delay time.Duration, rank int, do func()) {
	s.events = append(s.events, simEvent{s.now.Add(delay), rank, do})
}

// happen lets the events happen whose time has come, the earliest first.
func (s *sim) happen() {
	for {
		next := -1
		for k, ev := range s.events {
			if ev.due.After(s.now) || ev.rank >= 0 && s.ranks[ev.rank].stopped {
				continue
			}
			if next < 0 || ev.due.Before(s.events[next].due) {
				next = k
			}
		}
		if next < 0 {
			return
		}
		ev := s.events[next]
		s.events = slices.Delete(s.events, next, next+1)
		if ev.rank < 0 || !s.ranks[ev.rank].dead {
			ev.do()
			if ev.rank >= 0 {
				s.check(ev.rank)
			}
		}
	}
}

// latency is the time of a message of the network.
func (s *sim) latency() time.Duration {
	d := time.Duration(s.rng.IntN(300)) * time.Microsecond
	if s.chance(10) {
		d *= 100
	}
	return d
}

// simDialer is the Dialer of a simulated rank. The simulation makes the attempts itself.
type simDialer struct{}

func (simDialer) Dial(context.Context, int) (Link, error) { panic("not simulated") }
func (simDialer) Request(context.Context, int) (*backend.Fault, error) {
	panic("not simulated")
}
func (simDialer) NotListening(err error) bool    { return err == errNotListening }
func (simDialer) Refused(error) bool             { return false }
func (simDialer) Serve(context.Context, *Engine) {}
func (simDialer) Close()                         {}

var errSilent = errors.New("simulated: no answer")

// simAttempt is an attempt of a rank to reach another one, for a link, or to ask for one.
type simAttempt struct {
	s     *sim
	from  int
	p     *peer
	pause time.Duration // before the attempt
	over  bool
}

// attempt makes one attempt after a pause, and further ones until none is needed.
func (s *sim) attempt(from int, p *peer, pause time.Duration) {
	a := &simAttempt{s: s, from: from, p: p, pause: pause}
	wait := s.latency()
	if pause > 0 {
		wait += pause/2 + time.Duration(s.rng.Int64N(int64(pause)))
	}
	s.at(wait, -1, func() {
		to := s.ranks[p.rank]
		if s.ranks[from].dead {
			return
		}
		if to.dead || to.left {
			a.end(errNotListening)
			return
		}
		s.at(attemptFor, -1, func() { a.end(errSilent) })
		s.at(s.latency(), p.rank, func() {
			switch {
			case a.over:
			case to.left:
				a.end(errNotListening)
			case p.rank > from:
				a.request(to.e)
			default:
				a.dial(to.e)
			}
		})
	})
}

// end ends the attempt, unless it has ended.
func (a *simAttempt) end(err error) {
	if a.over {
		return
	}
	a.over = true
	a.s.at(a.s.latency(), a.from, func() { a.asked(err) })
}

func (a *simAttempt) asked(err error) {
	if !a.s.ranks[a.from].e.demand.asked(a.p, err) {
		a.s.attempt(a.from, a.p, longer(a.pause))
	}
}

// request is what a request does at the rank that is asked.
func (a *simAttempt) request(to *Engine) {
	s := a.s
	lost, answer := to.Requested(a.from)
	a.over = true
	s.at(s.latency(), a.from, func() {
		if !answer {
			a.asked(io.ErrUnexpectedEOF)
			return
		}
		s.ranks[a.from].e.demand.answered(a.p, lost)
		a.asked(nil)
	})
}

// dial is what a dial does at the rank that is dialed. Either rank may have the link first. One of them may fail to
// take it: then it ends for the other.
func (a *simAttempt) dial(to *Engine) {
	s, here, there := a.s, a.from, a.p.rank
	e := s.ranks[here].e
	x, y := s.connect(here, there)
	a.over = true
	fails := 0
	if !s.calm && s.chance(4) {
		fails = 1 + s.rng.IntN(3)
	}
	s.say("rank %d dials rank %d (fails %d)", here, there, fails)
	s.at(s.latency(), here, func() {
		if fails&1 != 0 {
			x.Close()
			s.drop(y)
			a.asked(errReset)
			return
		}
		e.Came(there, x)
		a.asked(nil)
	})
	s.at(s.latency(), there, func() {
		if fails&2 != 0 || s.ranks[there].left {
			y.Close()
			s.drop(x)
			return
		}
		to.Came(here, y)
	})
}

// drop ends an end of a link whose other end was given up before it carried anything.
func (s *sim) drop(end simEnd) {
	switch l := end.(type) {
	case *simLink:
		l.ended = io.EOF
	case *simMemoryLink:
		l.Ended(nil)
	}
}

// connect makes a link between two ranks.
func (s *sim) connect(a, b int) (x, y simEnd) {
	if s.nodes[a] == s.nodes[b] && s.memory.room() {
		x, y = s.memory.link(s, a, b, s.kernel)
	} else {
		x, y = simPair(s)
	}
	s.links[a][b], s.links[b][a] = x, y
	s.ends[a], s.ends[b] = append(s.ends[a], x), append(s.ends[b], y)
	return x, y
}

// depart lets a rank leave in good order, while the others go on.
func (s *sim) depart(i int) {
	r := s.ranks[i]
	s.say("rank %d leaves", i)
	s.faulty = true
	for ctx, c := range r.comms {
		s.closed[ctx][i] = true
		if c == nil {
			continue
		}
		if ctx > 0 {
			c.Close()
		}
		r.comms[ctx] = nil
	}
	s.check(i)
	c := r.e.comms[0]
	c.closed.Store(true)
	c.retire()
	r.leaving = r.e.newLeaving(leaveQueued, leaveLinks, leaveMost)
	s.check(i)
}

// look goes on with a rank's leaving.
func (s *sim) look(i int) {
	if r := s.ranks[i]; r.leaving.look() {
		s.say("rank %d has left", i)
		r.left = true
		s.unheard = s.unheard || slices.ContainsFunc(s.ranks, func(r *simRank) bool { return r.stopped })
	}
	s.check(i)
}
