package membership

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Three ranks run through every order of events: one needs a link to another, one leaves in good order, one dies, a
// link ends before it is confirmed, and every message of every link arrives at any moment. Ranks 0 and 1, and 0 and 2,
// have a link from the start, and rank 0 is the hub.
//
//   - A rank that lives, or has left in good order, is lost for nobody. There is one exception: the hub that has
//     acknowledged its goodbye dies before the others have that from it.
//   - In the end a rank that died is lost for all others, and one that leaves has left, for all others too.
//   - In the end the rank that needs a link has it, or knows that the other one has left or is lost.
//
// Time passes only when nothing else can happen: then no rank is slow.
//
// Five ranks, of which several leave, have too many orders: they go through random ones.

// statesMost is more than any plan has: with more, ranks would go on without end and without progress.
const statesMost = 20_000

// every runs through every order of events of a plan, and returns how many states there are.
func every(t *testing.T, p plan) int {
	type node struct {
		w      *net
		parent int
		by     string
	}
	list, seen := []node{{newNet(p), -1, "the job begins"}}, map[string]bool{}
	fail := func(i int, by, text string) {
		t.Helper()
		trace := []string{by}
		for ; i >= 0; i = list[i].parent {
			trace = append(trace, list[i].by)
		}
		slices.Reverse(trace)
		t.Fatalf("%+v: %s, after:\n%s", p, text, strings.Join(trace, "\n"))
	}
	for i := 0; i < len(list); i++ {
		if len(list) > statesMost {
			fail(i, "and so on", "the ranks come to no end")
		}
		w := list[i].w
		events := w.events()
		if !busy(events) {
			events = append(events, event{name: "time passes"})
		}
		for _, ev := range events {
			next := w.clone()
			if ev.do != nil {
				ev.do(next)
			} else if !next.tick() {
				if text := next.unfinished(); text != "" {
					fail(i, ev.name, text)
				}
				continue
			}
			if text := next.wrong(); text != "" {
				fail(i, ev.name, text)
			}
			if k := next.key(); !seen[k] {
				seen[k] = true
				list = append(list, node{next, i, ev.name})
			}
		}
		list[i].w = nil
	}
	return len(list)
}

// TestEveryOrder runs through every order of every plan.
func TestEveryOrder(t *testing.T) {
	states, plans := 0, 0
	for _, need := range [][2]int{{2, 1}, {1, 2}} {
		for leaver := -1; leaver < 3; leaver++ {
			for victim := -1; victim < 3; victim++ {
				p := plan{ranks: 3, needs: [][2]int{need}, victim: victim}
				if leaver >= 0 {
					p.leavers[leaver] = true
				}
				if victim < 0 || leaver < 0 {
					p.fails = 1
				}
				n := every(t, p)
				t.Logf("%+v: %d states", p, n)
				states += n
				plans++
			}
		}
	}
	t.Logf("%d plans, %d states", plans, states)
}

// TestRandomOrders has five ranks, of which any leave, any need links, and one may die.
func TestRandomOrders(t *testing.T) {
	walks := 60_000
	if testing.Short() {
		walks = 6_000
	}
	for seed := range uint64(walks) {
		rng := rand.New(rand.NewPCG(seed, 9))
		p := plan{ranks: most, victim: -1, fails: rng.IntN(3), walks: true}
		for r := range p.leavers {
			p.leavers[r] = rng.IntN(4) > 0
		}
		if rng.IntN(4) == 0 {
			p.victim = rng.IntN(most)
		}
		for range rng.IntN(most + 1) {
			if a, b := rng.IntN(most), rng.IntN(most); a != b {
				p.needs = append(p.needs, [2]int{a, b})
			}
		}
		walk(t, rng, newNet(p))
		if t.Failed() {
			t.Fatalf("seed %d, %+v", seed, p)
		}
	}
}

// walk runs through one order.
func walk(t *testing.T, rng *rand.Rand, w *net) {
	var trace []string
	fail := func(text string) { t.Errorf("%s, after:\n%s", text, strings.Join(trace, "\n")) }
	for range 5000 {
		events := w.events()
		if len(events) == 0 || !busy(events) && rng.IntN(3) == 0 {
			for _, ev := range events {
				if ev.again {
					trace = append(trace, ev.name)
					ev.do(w)
				}
			}
			if busy(w.events()) {
				continue
			}
			trace = append(trace, "time passes")
			if !w.tick() && len(events) == 0 {
				if text := w.unfinished(); text != "" {
					fail(text)
				}
				return
			}
		} else {
			i := rng.IntN(len(events))
			if events[i].outside && rng.IntN(3) > 0 {
				i = rng.IntN(len(events))
			}
			trace = append(trace, events[i].name)
			events[i].do(w)
		}
		if text := w.wrong(); text != "" {
			fail(text)
			return
		}
	}
	fail("the ranks come to no end")
}
