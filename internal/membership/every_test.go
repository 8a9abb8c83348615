package membership

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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
// Five ranks, of which several leave, have too many orders: they go through random ones, and through those in
// testdata/orders, which once ended in a wrong state.

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

// TestMembershipHoldsInEveryOrder runs through every order of every plan.
func TestMembershipHoldsInEveryOrder(t *testing.T) {
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

// TestMembershipHoldsInRandomOrders has five ranks, of which any leave, any need links, and one may die.
func TestMembershipHoldsInRandomOrders(t *testing.T) {
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
		choose := evenly
		if seed%2 == 0 {
			choose = byPriority(rng)
		}
		walk(t, rng, newNet(p), choose)
		if t.Failed() {
			t.Fatalf("seed %d, %+v", seed, p)
		}
	}
}

// TestOrdersThatWereWrong does the first events of each file, or all, as far as they can still happen, and goes on at random.
func TestOrdersThatWereWrong(t *testing.T) {
	files, err := filepath.Glob("testdata/orders/*")
	if len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Split(strings.TrimSpace(string(text)), "\n")
		p := plan{ranks: most, victim: -1, fails: 2, walks: true}
		for _, name := range names {
			var a, b int
			if _, err := fmt.Sscanf(name, "rank %d goes on with its leaving", &a); err == nil {
				p.leavers[a] = true
			}
			if _, err := fmt.Sscanf(name, "rank %d needs rank %d", &a, &b); err == nil {
				p.needs = append(p.needs, [2]int{a, b})
			}
			if _, err := fmt.Sscanf(name, "rank %d dies", &a); err == nil {
				p.victim = a
			}
		}
		for seed := range uint64(400) { // a wrong state shows in some of the ways in which the ranks go on
			rng, w := rand.New(rand.NewPCG(seed, 1)), newNet(p)
			cut := len(names)
			if seed%2 == 1 {
				cut = rng.IntN(cut)
			}
			for _, name := range names[:cut] {
				for _, ev := range w.events() {
					if ev.name == name {
						ev.do(w)
						break
					}
				}
				if text := w.wrong(); text != "" {
					t.Fatalf("%s: %s", file, text)
				}
			}
			if walk(t, rng, w, evenly); t.Failed() {
				t.Fatalf("these follow %d events of %s, seed %d", cut, file, seed)
			}
		}
	}
}

// TestLostHubPromisesNothing reads the acknowledgement of a hub that another rank has reported lost.
func TestLostHubPromisesNothing(t *testing.T) {
	m := newNet(plan{ranks: 3}).ranks[2].m
	m.Part()
	m.Lose(0, AnotherRank)
	m.Rehub()
	m.Told(0, Notice{Kind: HaveLeft, Ranks: []int{2}, Hub: true})
	if m.MayEnd() {
		t.Errorf("rank 2 may end on the word of rank 0, which is lost; its hub is rank %d", m.Hub)
	}
}

// TestPromiseEndsWithLossOfHub reports the loss of a hub whose promise a rank has, and which it had taken for left.
func TestPromiseEndsWithLossOfHub(t *testing.T) {
	m := newNet(plan{ranks: 3}).ranks[2].m
	m.Part()
	m.Told(0, Notice{Kind: HaveLeft, Ranks: []int{2}, Hub: true})
	m.Said(0, true)
	m.Lose(0, AnotherRank)
	m.Rehub()
	if m.MayEnd() {
		t.Errorf("rank 2 may end on the promise of rank 0, which is lost; its hub is rank %d", m.Hub)
	}
}

// TestOlderPromiseIsReadLater reads the promise of a hub, and then that of the one before, which is lost.
func TestOlderPromiseIsReadLater(t *testing.T) {
	m := newNet(plan{ranks: 4}).ranks[3].m
	m.Part()
	for _, hub := range []int{1, 0} {
		m.Told(hub, Notice{Kind: HaveLeft, Ranks: []int{3}, Hub: true})
	}
	m.Lose(0, AnotherRank)
	m.Rehub()
	if !m.MayEnd() {
		t.Errorf("rank 3 has the promise of rank 1, and waits")
	}
}

// evenly chooses one of the events, and less often one that comes from outside.
func evenly(rng *rand.Rand, events []event) int {
	i := rng.IntN(len(events))
	if events[i].outside && rng.IntN(3) > 0 {
		i = rng.IntN(len(events))
	}
	return i
}

// byPriority chooses the event of the highest priority. Priorities are random, and at a few random steps the chosen
// event falls behind all others, so that one rank or one link gets far behind (Burckhardt and others, ASPLOS 2010).
func byPriority(rng *rand.Rand) func(*rand.Rand, []event) int {
	priority, done, falls := map[string]int{}, map[string]int{}, map[int]bool{}
	for range rng.IntN(6) {
		falls[rng.IntN(120)] = true
	}
	steps := 0
	return func(rng *rand.Rand, events []event) int {
		steps++
		if !busy(events) || rng.IntN(40) == 0 {
			return rng.IntN(len(events))
		}
		best := -1
		for i, ev := range events {
			if _, ok := priority[ev.name]; !ok {
				priority[ev.name] = rng.Int()
			}
			if !(ev.outside && ev.again) && (best < 0 || priority[ev.name] > priority[events[best].name]) {
				best = i
			}
		}
		name := events[best].name
		if done[name]++; falls[steps] || done[name]%3 == 0 && strings.Contains(name, "tries") {
			priority[name] = -steps
		}
		return best
	}
}

// walk runs through one order.
func walk(t *testing.T, rng *rand.Rand, w *net, choose func(*rand.Rand, []event) int) {
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
			if busy(w.events()) && rng.IntN(2) == 0 {
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
			ev := events[choose(rng, events)]
			trace = append(trace, ev.name)
			ev.do(w)
		}
		if text := w.wrong(); text != "" {
			fail(text)
			return
		}
	}
	fail("the ranks come to no end")
}
