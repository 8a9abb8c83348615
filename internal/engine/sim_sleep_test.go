package engine

import (
	"runtime"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// simSleeper is what the waiter of a simulated rank sleeps on. The waiter is a goroutine that runs Await while the
// simulation stands still: it hands over when it sleeps and when its wait is over. A rank that sleeps makes no progress,
// until its sleeper is rung, or a link for which it has asked has news.
type simSleeper struct {
	s       *sim
	bell    wait.Bell // armed while the rank sleeps, or is about to
	rung    bool
	armed   []simArmed
	waiting *simRequest // what the waiter waits for; nil: there is no waiter
	asleep  bool
	resume  chan struct{}
	handed  chan any // back to the simulation, with what the waiter has panicked with
}

type simArmed struct {
	link Link
	room bool // to be woken when there is room to write
}

func newSimSleeper(s *sim) *simSleeper {
	return &simSleeper{s: s, resume: make(chan struct{}), handed: make(chan any)}
}

func (z *simSleeper) Begin() {
	z.rung = false
	z.bell.Arm()
}

func (z *simSleeper) Add(l Link, room bool) bool {
	a := simArmed{l, room}
	z.armed = append(z.armed, a)
	return z.news(a)
}

// news reports whether a link has news for the system. A link through memory has none: its other end rings.
func (z *simSleeper) news(a simArmed) bool {
	l, ok := a.link.(*simLink)
	if !ok {
		return false
	}
	arrived := len(l.flight) > 0 && !l.flight[0].due.After(z.s.now) || len(l.flight) == 0 && l.ended != nil
	return arrived || a.room && (len(l.other.flight) < simRoom || l.other.closed)
}

func (z *simSleeper) Sleep(time.Duration) {
	z.asleep = true
	z.handed <- nil
	<-z.resume
	z.asleep = false
	if z.s.over {
		runtime.Goexit()
	}
}

func (z *simSleeper) End() {
	z.bell.Disarm()
	z.armed = z.armed[:0]
}

func (z *simSleeper) Ring()                            { z.rung = true }
func (z *simSleeper) Poll([]Link, []bool, func(i int)) {}
func (z *simSleeper) Close()                           {}

// called reports whether the sleep is to end.
func (z *simSleeper) called() bool {
	return z.asleep && (z.rung || slices.ContainsFunc(z.armed, z.news))
}

// run lets the waiter go on until it sleeps or has waited.
func (z *simSleeper) run() {
	if v := <-z.handed; v != nil {
		panic(v)
	}
}

// sleep lets a rank wait for one of its operations, or go on with that.
func (s *sim) sleep(i int) {
	z := s.sleepers[i]
	if z.waiting != nil {
		if z.called() {
			z.resume <- struct{}{}
			z.run()
		} else {
			s.oversleeps(i)
		}
		s.check(i)
		return
	}
	q, c := s.some(i)
	if c == nil {
		return
	}
	s.say("rank %d waits for its operation %d", i, q.post)
	z.waiting = q
	go func() {
		defer func() { z.handed <- recover() }()
		c.Await(&backend.Bound{}, &q.Request)
		z.waiting = nil
	}()
	z.run()
	s.check(i)
}

// oversleeps checks that a rank that sleeps, and that nothing wakes, could not end an operation by itself.
func (s *sim) oversleeps(i int) {
	e := s.ranks[i].e
	active := e.active
	for e.poll() {
	}
	if e.active != active {
		s.fail("rank %d sleeps, and could end %d operations if it looked", i, active-e.active)
	}
}

// rest ends the waits of the simulation.
func (s *sim) rest() {
	s.over = true
	for _, z := range s.sleepers {
		if z.asleep {
			z.resume <- struct{}{}
			<-z.handed
		}
	}
}
