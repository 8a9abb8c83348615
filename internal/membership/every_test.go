package membership

import (
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
		for leaver := -1; leaver < size; leaver++ {
			for victim := -1; victim < size; victim++ {
				fails := 1
				if victim >= 0 && leaver >= 0 {
					fails = 0
				}
				n := every(t, plan{need: need, leaver: leaver, victim: victim, fails: fails})
				t.Logf("link %v, leaver %d, victim %d: %d states", need, leaver, victim, n)
				states += n
				plans++
			}
		}
	}
	t.Logf("%d plans, %d states", plans, states)
}
