package generation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// In every order of deaths, stops, cuts, deadlines, failed joins, late messages and changes of size: no two processes have one rank; a
// process that does what it should is not killed; a world is used by all its ranks or by none; a call whose time is over
// ends; and when nothing fails any more, all get a place or learn why not.
func TestJobsHoldInRandomOrders(t *testing.T) {
	jobs := 20000
	if testing.Short() {
		jobs = 1000
	}
	worlds := 0
	for seed := range jobs {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		size := 1 + r.IntN(4)
		c := Config{Size: size, Min: size, Max: size, Restarts: r.IntN(12)}
		if r.IntN(2) == 0 {
			c.Min, c.Max = 1+r.IntN(size), 5
		}
		s := newSim(t, fmt.Sprint("seed ", seed), c)
		s.rest = r.IntN(4)
		for range 200 {
			s.random(r, seed%3 == 0)
			s.check()
		}
		s.settle(60, 5*time.Second)
		worlds += s.latest + 1
	}
	if worlds < 2*jobs {
		t.Fatalf("%d jobs formed only %d worlds", jobs, worlds)
	}
	t.Logf("%d jobs formed %d worlds", jobs, worlds)
}

// random makes an event.
func (s *sim) random(r *rand.Rand, cut bool) {
	a := s.all[r.IntN(len(s.all))]
	switch n := r.IntN(100); {
	case a.ended:
	case a.dead:
		if n < 50 && len(a.up) > 0 {
			s.told(a)
		} else {
			s.reports(a, r.IntN(4) == 0)
		}
	case n < 3:
		s.die(a)
	case a.stopped:
	case n < 4 && a.uses != nil && r.IntN(4) == 0:
		s.stop(a)
	case n < 5 && a.calls():
		a.over = true
	case n < 7:
		_ = s.Scale(1 + r.IntN(5))
	case n < 12:
		s.now = s.now.Add(time.Duration(r.Int64N(int64(200 * time.Millisecond))))
		s.Tick()
	case n < 40 && len(a.up) > 0:
		s.told(a)
	case n < 70 && len(a.down) > 0:
		s.hears(a)
	case a.at == connects && r.IntN(12) == 0:
		a.opened(errOpen)
	case a.at == connects:
		a.opened(nil)
	case s.due(a) || a.at == asks && r.IntN(4) == 0:
		s.step(a, s.lost(a, cut))
	case !a.calls() && a.err == nil && (s.reason(a) || r.IntN(20) == 0):
		s.enter(a, cut)
	case a.out && a.err != nil && r.IntN(4) == 0:
		s.die(a)
	}
}

// Every order of the events of small jobs, in which a limited number of them are failures.
func TestSmallJobsHoldInEveryOrder(t *testing.T) {
	for _, c := range []struct {
		size, restarts int
		left           budget
	}{
		{2, 1, budget{deaths: 1}},
		{2, 1, budget{stops: 1}},
		{2, 0, budget{deadlines: 1, failures: 1}},
		{2, 0, budget{deadlines: 2}},
		{2, 1, budget{deaths: 1, failures: 1}},
		{2, 1, budget{calls: 1, failures: 1, stops: 1}},
		{2, 1, budget{deaths: 1, deadlines: 1}},
		{3, 0, budget{deadlines: 1}},
	} {
		if testing.Short() && c.left.deaths+c.left.deadlines+c.left.failures+c.left.stops+c.size > 3 && c.left.stops == 0 {
			continue // make test-all runs them
		}
		name := fmt.Sprintf("%+v", c)
		first := newSim(t, name, Config{Size: c.size, Min: c.size, Max: c.size, Restarts: c.restarts})
		first.left = c.left
		seen := map[string]bool{first.key(): true}
		for todo := []*sim{first}; len(todo) > 0; {
			s := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			for i := range s.choices() {
				next := s.clone()
				next.choices()[i]()
				next.check()
				if key := next.key(); !seen[key] {
					seen[key] = true
					todo = append(todo, next)
				}
			}
		}
		t.Logf("%s: %d states", name, len(seen))
	}
}

// A budget is how many failures may still happen.
type budget struct {
	deaths, deadlines, failures, stops int
	calls                              int // of Enter without a reason
}

// choices returns the events that are possible. Time passes only when nothing is under way: processes and messages are
// quick, but a process may take its time before it calls Enter.
func (s *sim) choices() (all []func()) {
	left := &s.left
	for _, a := range s.all {
		switch {
		case a.ended || a.stopped && !a.dead:
			continue
		case a.dead:
			all = append(all, func() { s.reports(a, false) })
		case a.at == connects:
			all = append(all, func() { a.opened(nil) })
		case s.due(a):
			all = append(all, func() { s.step(a, s.lost(a, false)) })
		}
		if len(a.up) > 0 {
			all = append(all, func() { s.told(a) })
		}
		if len(a.down) > 0 {
			all = append(all, func() { s.hears(a) })
		}
	}
	quiet := len(all) == 0
	for _, a := range s.all {
		if !a.dead && !a.stopped && len(a.down) == 0 && !a.out && s.reason(a) {
			all = append(all, func() { s.enter(a, false) })
		}
	}
	if at := s.deadline(); quiet && !at.IsZero() {
		all = append(all, func() { s.pass(max(at.Sub(s.now), 0)) })
	}
	if quiet {
		s.still()
	}
	if len(all) == 0 {
		s.done()
	}
	for _, a := range s.all {
		if a.dead || a.stopped {
			continue
		}
		if left.stops > 0 && a.uses != nil {
			all = append(all, func() { left.stops--; s.stop(a) })
		}
		if left.deaths > 0 {
			all = append(all, func() { left.deaths--; s.die(a) })
		}
		if left.calls > 0 && a.at == inside && !s.reason(a) {
			all = append(all, func() { left.calls--; s.enter(a, false) })
		}
		if left.deadlines > 0 && a.calls() && !a.over {
			all = append(all, func() { left.deadlines--; a.over = true })
		}
		if left.failures > 0 && a.at == connects {
			all = append(all, func() { left.failures--; a.opened(errOpen) })
		}
	}
	return all
}
