package generation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is a job whose processes do what real ones may do, in every order that a random source finds. It checks what the
// machine promises, after every event.
type world struct {
	*Machine
	t      *testing.T
	random *rand.Rand
	now    time.Time
	all    map[int]*actor // by id
	latest int            // the generation of the last place
	places map[int][]int  // of each generation: the id of each rank
	world  map[int]int    // the generation that a process was last told to go on with
	failed bool
}

type actor struct {
	id     int
	asked  bool // and has no answer
	joins  bool // it has a place, and does not know yet whether all join
	joined bool // it has said that it has joined
	place  *Place
	out    bool
	dead   bool
}

func (w *world) Start(id, rank int) { w.all[id] = &actor{id: id} }

func (w *world) Kill(id int) {
	a := w.all[id]
	if a.asked || a.out {
		w.t.Fatalf("process %d is killed, which has asked (%v) or is out (%v)", id, a.asked, a.out)
	}
	a.out = true
}

func (w *world) Fail(string) { w.failed = true }

func (w *world) Tell(id int, m Message) {
	a := w.all[id]
	if a == nil || a.dead {
		w.t.Fatalf("process %d does not live: %+v", id, m)
	}
	switch {
	case m.Go && (!a.joined || !a.joins), m.Broken != "" && !a.joins:
		w.t.Fatalf("process %d joins: %v, has joined: %v: %+v", id, a.joins, a.joined, m)
	case m.Go:
		a.joins, a.joined = false, false
		w.world[id] = a.place.Generation
		return
	case m.Broken != "":
		a.joins, a.joined, a.place = false, false, nil
		return
	case m.Place == nil && m.Out == "" && m.Missing == nil:
		return
	}
	switch {
	case !a.asked && !(m.Out != "" && m.Left):
		w.t.Fatalf("process %d has not asked: %+v", id, m)
	case a.out:
		w.t.Fatalf("process %d is out already: %+v", id, m)
	}
	a.asked, a.out = false, a.out || m.Out != ""
	if p := m.Place; p != nil {
		if p.Size < w.Min || p.Size > w.Max || p.Job != fmt.Sprintf("j.%d", p.Generation) {
			w.t.Fatalf("%+v in a job of %d to %d", *p, w.Min, w.Max)
		}
		if w.places[p.Generation] == nil {
			if p.Generation != w.latest+1 {
				w.t.Fatalf("generation %d after %d", p.Generation, w.latest)
			}
			w.latest, w.places[p.Generation] = p.Generation, slices.Repeat([]int{-1}, p.Size)
		}
		ids := w.places[p.Generation]
		if len(ids) != p.Size || ids[p.Rank] >= 0 {
			w.t.Fatalf("generation %d of %v: process %d is %+v", p.Generation, ids, id, *p)
		}
		if old := a.place; old != nil && old.Size == p.Size && old.Rank != p.Rank && w.Restarts > 0 {
			w.t.Fatalf("process %d was %+v and is %+v", id, *old, *p)
		}
		ids[p.Rank], a.place, a.joins = id, p, true
	}
}

// living returns the processes that can still get a place, in the order of their ids.
func (w *world) living() (all []*actor) {
	for id := range len(w.all) {
		if a := w.all[id]; !a.dead && !a.out {
			all = append(all, a)
		}
	}
	return all
}

func (w *world) ask(a *actor, cut bool) {
	var r Ask
	if a.place != nil {
		for rank, id := range w.places[a.place.Generation] {
			if b := w.all[id]; id != a.id && (b.dead || b.out || cut && (id^a.id)&1 == 1) {
				r.Lost = append(r.Lost, rank)
			}
		}
	}
	a.asked = true
	w.Handle(a.id, Request{Ask: &r})
}

func (w *world) step(cut bool) {
	all := w.living()
	if len(all) == 0 {
		return
	}
	a := all[w.random.IntN(len(all))]
	switch n := w.random.IntN(20); {
	case n < 11:
		switch {
		case a.joins && w.random.IntN(12) == 0:
			w.Handle(a.id, Request{Failed: true})
			if a.joins {
				w.t.Fatalf("process %d has no answer after it failed", a.id)
			}
		case a.joins && !a.joined:
			a.joined = true
			w.Handle(a.id, Request{Joined: true})
		case !a.joins && !a.asked:
			w.ask(a, cut)
		}
	case n < 14:
		a.dead, a.asked = true, false
		w.Ended(a.id, false, w.random.IntN(4) == 0)
	case n < 15 && a.asked:
		w.Handle(a.id, Request{Withdraw: true})
		if a.asked {
			w.t.Fatalf("process %d has no answer after it withdrew", a.id)
		}
	case n < 16:
		_ = w.Scale(1 + w.random.IntN(5))
	case n < 17:
		for _, a := range w.all {
			if a.out && !a.dead {
				a.dead = true
				if fate := w.Ended(a.id, w.random.IntN(2) == 0, false); fate != Ignored && w.over == "" {
					w.t.Fatalf("the end of process %d, which was out, decides", a.id)
				}
			}
		}
	default:
		w.now = w.now.Add(time.Duration(w.random.Int64N(int64(400 * time.Millisecond))))
		w.Tick()
	}
	taken := make(map[int]int)
	for _, a := range w.living() {
		if other, twice := taken[w.Rank(a.id)]; twice {
			w.t.Fatalf("processes %d and %d are both rank %d", other, a.id, w.Rank(a.id))
		}
		taken[w.Rank(a.id)] = a.id
	}
}

// In every order of deaths, cuts, late requests, withdrawals and changes of size: no two processes have one rank, every request
// gets one answer, sizes are within the limits, and once all that live ask, all get a place or learn why not.
func TestRandomOrders(t *testing.T) {
	jobs := 20000
	if testing.Short() {
		jobs = 3000
	}
	worlds := 0
	for seed := range jobs {
		w := &world{t: t, random: rand.New(rand.NewPCG(uint64(seed), 1)), now: time.Unix(1000, 0), all: make(map[int]*actor), latest: -1, places: make(map[int][]int), world: make(map[int]int)}
		size := 1 + w.random.IntN(4)
		c := Config{Now: func() time.Time { return w.now }, Job: "j", Size: size, Min: size, Max: size, Restarts: w.random.IntN(12), Host: w}
		if w.random.IntN(2) == 0 {
			c.Min, c.Max = 1+w.random.IntN(size), 5
		}
		for id := range size {
			w.Start(id, id)
		}
		w.Machine = New(c)
		for range 40 {
			w.step(seed%3 == 0)
		}
		for range 60 { // now all that live ask
			for _, a := range w.living() {
				if a.joins && !a.joined && !a.out {
					a.joined = true
					w.Handle(a.id, Request{Joined: true})
				} else if !a.asked && !a.joins && !a.out && (a.place == nil || a.place.Generation < w.latest || w.places[w.latest] != nil && w.gone()) {
					w.ask(a, false)
				}
			}
			w.now = w.now.Add(5 * time.Second)
			w.Tick()
		}
		for _, a := range w.living() {
			if a.joins && !w.failed {
				t.Fatalf("seed %d: process %d does not learn whether all have joined: %+v", seed, a.id, w.Machine)
			}
			if g, in := w.world[a.id]; in && a.place != nil && !w.whole(g) {
				t.Fatalf("seed %d: process %d goes on with generation %d, and not all its ranks do", seed, a.id, g)
			}
			if a.asked && !w.failed {
				// The others of its world live and have no reason to ask.
				if a.place == nil || w.gone() {
					t.Fatalf("seed %d: process %d waits for ever: %+v", seed, a.id, w.Machine)
				}
			}
		}
		worlds += w.latest + 1
	}
	if worlds < 2*jobs {
		t.Fatalf("%d jobs formed only %d worlds", jobs, worlds)
	}
	t.Logf("%d jobs formed %d worlds", jobs, worlds)
}

// whole reports whether all ranks of a generation were told to go on with it, or have ended or are out.
func (w *world) whole(g int) bool {
	for _, id := range w.places[g] {
		if a := w.all[id]; !a.dead && !a.out && w.world[id] < g {
			return false
		}
	}
	return true
}

// gone reports whether a rank of the present world is lost, or another world is to come for another reason.
func (w *world) gone() bool {
	for _, id := range w.places[w.latest] {
		if a := w.all[id]; a.dead || a.out || a.asked {
			return true
		}
	}
	return w.latest < 0 || w.want != len(w.places[w.latest])
}
