package generation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// sim is a job: the launcher's machine, and processes that enter worlds by the entries that clients use, with messages under
// way in both directions. It checks what the package promises, after every event. A test chooses the events.
type sim struct {
	*Machine
	t      *testing.T
	name   string // of the run, for messages
	rest   int    // how many pauses a process makes in settle before it calls Enter again
	now    time.Time
	all    []*actor      // by id
	latest int           // the generation of the last place
	places map[int][]int // of each generation: the id of each rank
	failed bool          // the machine has ended the job
	left   budget        // of failures
}

// An actor is a process.
type actor struct {
	entry
	id      int
	over    bool      // the time of its call of Enter is over
	up      []Request // under way to the launcher
	down    []Message // under way from it
	place   *Place    // given by the launcher, unless all know that it cannot be joined
	uses    *Place    // what it takes for its world
	out     bool      // the launcher has taken it out
	dead    bool
	stopped bool // it does nothing any more, and lives
	ended   bool // and the launcher knows it
	accused bool // others have counted it as lost while it lived
	rested  int  // pauses, since its call of Enter has failed
}

func newSim(t *testing.T, name string, c Config) *sim {
	s := &sim{t: t, name: name, now: time.Unix(1000, 0), latest: -1, places: make(map[int][]int)}
	for id := range c.Size {
		s.Start(id, id)
	}
	c.Now, c.Job, c.Host = func() time.Time { return s.now }, "j", s
	s.Machine = New(c)
	return s
}

// clone returns a copy of a job.
func (s *sim) clone() *sim {
	c, m := *s, *s.Machine
	c.Machine = &m
	m.Host, m.Now = &c, func() time.Time { return c.now }
	m.processes, m.starts = make(map[int]*process), make(map[int]*starts)
	for id, p := range s.processes {
		q := *p
		q.lost = maps.Clone(p.lost)
		m.processes[id] = &q
	}
	for rank, at := range s.starts {
		q := *at
		m.starts[rank] = &q
	}
	m.members = slices.Clone(s.members)
	c.places = make(map[int][]int)
	for g, ids := range s.places {
		c.places[g] = slices.Clone(ids)
	}
	c.all = make([]*actor, len(s.all))
	for i, a := range s.all {
		b := *a
		b.up, b.down = slices.Clone(a.up), slices.Clone(a.down)
		c.all[i] = &b
	}
	return &c
}

func (s *sim) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s: %s\n%s", s.name, fmt.Sprintf(format, args...), s.key())
}

func (s *sim) Start(id, _ int) { s.all = append(s.all, &actor{id: id}) }

func (s *sim) Fail(string) { s.failed = true }

func (s *sim) Kill(id int) {
	a := s.all[id]
	switch {
	case a.out:
		s.fatalf("process %d is killed, which is out", id)
	case !a.dead && !a.accused && !a.stopped:
		s.fatalf("process %d is killed, and has done what it should: stage %d", id, a.at)
	}
	a.out, a.dead = true, true
}

func (s *sim) Tell(id int, m Message) {
	a := s.all[id]
	if a.ended {
		s.fatalf("process %d has ended: %+v", id, m)
	}
	if !a.dead {
		a.down = append(a.down, m)
	}
	switch p := m.Place; {
	case m.Broken != "":
		a.place = nil
	case m.Out != "":
		a.out = true
	case p != nil:
		if p.Size < s.Min || p.Size > s.Max || p.Job != fmt.Sprintf("j.%d", p.Generation) {
			s.fatalf("%+v in a job of %d to %d", *p, s.Min, s.Max)
		}
		if s.places[p.Generation] == nil {
			if p.Generation != s.latest+1 {
				s.fatalf("generation %d after %d", p.Generation, s.latest)
			}
			s.latest, s.places[p.Generation] = p.Generation, slices.Repeat([]int{-1}, p.Size)
		}
		ids := s.places[p.Generation]
		if len(ids) != p.Size || ids[p.Rank] >= 0 || a.out {
			s.fatalf("generation %d of %v: process %d, which is out (%v), is %+v", p.Generation, ids, id, a.out, *p)
		}
		if old := a.place; old != nil && old.Size == p.Size && old.Rank != p.Rank && s.Restarts > 0 {
			s.fatalf("process %d was %+v and is %+v", id, *old, *p)
		}
		ids[p.Rank], a.place = id, p
	}
}

// The events.

// due reports whether a process has a step to do.
func (s *sim) due(a *actor) bool {
	b := a.entry
	b.step(a.over, s.gone(a), s.lost(a, false))
	return b.at != a.at || b.known != a.known
}

// gone reports whether a process that is joining a world sees that another one has stopped.
func (s *sim) gone(a *actor) bool {
	return a.at == joins && slices.ContainsFunc(s.places[a.entry.place.Generation], func(id int) bool { return s.all[id].stopped })
}

func (s *sim) step(a *actor, lost []int) {
	a.up = append(a.up, a.entry.step(a.over, s.gone(a), lost)...)
}

// hears takes a message from the launcher. It must be one that the process waits for.
func (s *sim) hears(a *actor) {
	m := a.down[0]
	a.down = a.down[1:]
	before := a.at
	if m.Alive { // as Got does
		a.up = append(a.up, Request{Alive: true})
	}
	a.got(m)
	placed := before >= connects && before <= fails
	if m.Place != nil && before != asks && before != withdraws || m.Missing != nil && before != withdraws && a.err == nil ||
		m.Go && before != joins && before != fails || m.Broken != "" && !placed {
		s.fatalf("process %d in stage %d gets %+v", a.id, before, m)
	}
	if a.at == inside {
		if !a.ready {
			s.fatalf("process %d is to use %+v, and has not connected", a.id, a.entry.place)
		}
		p := a.entry.place
		a.uses = &p
	}
}

// told gives the launcher a request.
func (s *sim) told(a *actor) {
	r := a.up[0]
	a.up = a.up[1:]
	s.Handle(a.id, r)
}

// lost returns the ranks that a process counts as lost: those that have ended, and if the network is cut, those on the
// other side.
func (s *sim) lost(a *actor, cut bool) (ranks []int) {
	if a.uses == nil {
		return nil
	}
	for rank, id := range s.places[a.uses.Generation] {
		b := s.all[id]
		if id == a.id || !b.dead && !b.out && !b.stopped && !(cut && (id^a.id)&1 == 1) {
			continue
		}
		b.accused = true
		ranks = append(ranks, rank)
	}
	return ranks
}

func (s *sim) enter(a *actor, cut bool) {
	a.over, a.rested = false, 0
	a.begin()
	s.step(a, s.lost(a, cut))
}

// reason reports whether a process that is in no call of Enter has a reason to call it: it is in no world, or its world has
// lost a rank, or is to have another size.
func (s *sim) reason(a *actor) bool {
	switch {
	case a.calls() || a.err != nil:
		return false
	case a.at == outside || a.uses == nil || a.uses.Generation < s.latest:
		return true
	}
	for _, id := range s.places[a.uses.Generation] {
		if b := s.all[id]; b.dead || b.out || b.stopped || b.at != inside && b.uses != nil && b.uses.Generation == a.uses.Generation {
			return true
		}
	}
	return s.want != a.uses.Size
}

// calls reports whether a process is in a call of Enter.
func (a *actor) calls() bool { return a.at != outside && a.at != inside }

func (s *sim) die(a *actor) { a.dead, a.down = true, nil }

func (s *sim) stop(a *actor) { a.stopped = true }

// reports tells the launcher of the end of a process, after which it hears no request of it.
func (s *sim) reports(a *actor, follows bool) {
	a.ended, a.up = true, nil
	if fate := s.Ended(a.id, false, follows); a.out && fate != Ignored && s.over == "" {
		s.fatalf("the end of process %d, which was out, decides", a.id)
	}
}

// check checks what holds at all times.
func (s *sim) check() {
	ranks := make(map[int]int)
	users := make(map[Place]int)
	for _, a := range s.all {
		if a.dead {
			continue
		}
		if !a.out {
			if other, twice := ranks[s.Rank(a.id)]; twice {
				s.fatalf("processes %d and %d are both rank %d", other, a.id, s.Rank(a.id))
			}
			ranks[s.Rank(a.id)] = a.id
		}
		if a.uses == nil {
			continue
		}
		if other, twice := users[*a.uses]; twice || s.places[a.uses.Generation][a.uses.Rank] != a.id {
			s.fatalf("processes %d and %d both use %+v", other, a.id, *a.uses)
		}
		users[*a.uses] = a.id
	}
}

// still checks what holds when nothing is under way and every process has done its next step, though some may still connect.
func (s *sim) still() {
	connecting := slices.ContainsFunc(s.all, func(a *actor) bool { return !a.dead && a.at == connects })
	for _, a := range s.all {
		switch {
		case a.dead || a.stopped:
		case a.calls() && (a.over || a.err != nil) && a.at != connects:
			s.fatalf("the time of process %d is over, or it has no further place, and it is in stage %d", a.id, a.at)
		case a.at > connects && a.at < inside && !connecting && !s.waits(a):
			s.fatalf("process %d has no answer in stage %d", a.id, a.at)
		case a.uses != nil && !s.whole(a.uses.Generation):
			s.fatalf("process %d uses generation %d, and not all its ranks do", a.id, a.uses.Generation)
		}
	}
}

// waits reports whether a process with a place waits for a death of which the launcher has not heard, or for a process that
// has stopped.
func (s *sim) waits(a *actor) bool {
	return slices.ContainsFunc(s.places[a.entry.place.Generation], func(id int) bool {
		b := s.all[id]
		return b.dead && !b.ended || b.stopped
	})
}

// whole reports whether all ranks of a generation use it, or have used it, or have ended or are out.
func (s *sim) whole(g int) bool {
	for _, id := range s.places[g] {
		if a := s.all[id]; !a.dead && !a.out && !a.stopped && (a.uses == nil || a.uses.Generation < g) {
			return false
		}
	}
	return true
}

// done checks the end of a run in which no process fails any more, and each calls Enter when it has a reason, for as long as
// it takes: all are in the present world, or know that there is no other.
func (s *sim) done() {
	for _, a := range s.all {
		if a.dead || a.out || a.stopped || a.err != nil || s.failed {
			continue
		}
		if a.at != inside || a.uses.Generation != s.latest {
			s.fatalf("process %d never leaves stage %d", a.id, a.at)
		}
	}
}

var errOpen = errors.New("no connection")

// settle lets everything happen that is under way or due, without failures, and makes pauses in between.
func (s *sim) settle(pauses int, pause time.Duration) {
	for ; ; pauses-- {
		s.drain(false)
		s.still()
		s.drain(true)
		s.still()
		for _, a := range slices.Clone(s.all) {
			if a.dead && !a.ended {
				s.reports(a, false)
			}
		}
		for _, a := range s.all {
			if a.dead || a.out || a.stopped || !s.reason(a) {
				continue
			}
			if a.rested++; a.rested > s.rest {
				s.enter(a, false)
			}
		}
		if pauses == 0 {
			s.done()
			return
		}
		s.pass(pause)
	}
}

// pass lets time pass, in which the owner of the machine runs.
func (s *sim) pass(d time.Duration) {
	s.now = s.now.Add(d)
	s.seen = s.now
	s.Tick()
}

// drain lets everything happen that is under way. Processes that connect go on only if open is true, or if they have to stop.
func (s *sim) drain(open bool) {
	for busy := true; busy; {
		busy = false
		for _, a := range slices.Clone(s.all) {
			for ; len(a.up) > 0; busy = true {
				s.told(a)
			}
			if a.dead || a.stopped {
				continue
			}
			for ; len(a.down) > 0; busy = true {
				s.hears(a)
			}
			for ; s.due(a); busy = true {
				s.step(a, s.lost(a, false))
			}
			switch {
			case a.at != connects:
			case a.broken || a.over || a.err != nil || open && s.waits(a):
				a.opened(errOpen)
				busy = true
			case open:
				a.opened(nil)
				busy = true
			}
		}
		s.check()
	}
}

// key describes the state, but for the clock.
func (s *sim) key() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.left, s.Generation, s.members, s.unjoined, s.Machine.failed, s.want, s.resizing, s.over, s.Restarts, s.failed, until(s.doubted, s.now))
	for rank := range s.Max {
		if p := s.starts[rank]; p != nil {
			fmt.Fprint(&b, rank, p.quick, until(p.due, s.now), " ")
		}
	}
	for _, a := range s.all {
		fmt.Fprintf(&b, "\n%d: %v %v %d %v %d %v over %v dead %v %v ended %v out %v %v", a.id, a.at, a.broken, a.failures, a.missing, a.known, a.err, a.over, a.dead, a.stopped, a.ended, a.out, a.accused)
		if a.uses != nil {
			fmt.Fprint(&b, " uses ", *a.uses)
		}
		if p := s.processes[a.id]; p != nil {
			fmt.Fprint(&b, "; ", p.rank, p.state, p.generation, p.began.IsZero(), until(p.answer, s.now), until(p.heard, s.now), until(p.silent, s.now), p.lost)
		}
		for _, r := range a.up {
			fmt.Fprintf(&b, " up %v%v%v%v%v%v", r.Ask, r.Lost, r.Withdraw, r.Joined, r.Failed, r.Alive)
		}
		for _, m := range a.down {
			fmt.Fprintf(&b, " down %v%v%v%v%v%v%v%v", m.Place, m.Missing, m.Out, m.Left, m.Go, m.Broken, m.Resize, m.Alive)
		}
	}
	return b.String()
}

func until(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Sub(now).String()
}
