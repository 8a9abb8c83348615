package flight

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// messages reports which ranks wait for which in messages.
func (a *analysis) messages() (Finding, bool) {
	for r := range a.ranks {
		if circle := a.circle(r); len(circle) > 0 {
			var parts, sent []string
			var longest time.Duration
			past := true
			for _, m := range circle {
				past = past && a.ranks[m].past
			}
			for _, m := range circle {
				p := a.ranks[m]
				parts = append(parts, fmt.Sprintf("rank %d %s in %s", m, be([]int{m}, past), a.describe(p.d, p.op)))
				longest = max(longest, p.wait)
				if text := a.otherTag(m); text != "" {
					sent = append(sent, text)
				}
			}
			if len(sent) == 0 {
				sent = append(sent, "each waits for the next")
			}
			return Finding{Line: strings.Join(parts, ", ") + ": " + strings.Join(sent, "; ") + waiting(longest), Trouble: true}, true
		}
	}
	var waits []int
	for r, p := range a.ranks {
		if p.op != nil {
			waits = append(waits, r)
		}
	}
	if len(waits) == 0 {
		return Finding{}, false
	}
	// The rank that has waited longest, the rank it waits for, and so on, to a rank that does not wait.
	r := slices.MaxFunc(waits, func(x, y int) int { return cmp.Compare(a.ranks[x].wait, a.ranks[y].wait) })
	line := fmt.Sprintf("rank %d %s", r, a.state(r))
	chain := a.chain(r)
	if last := chain[len(chain)-1]; last != r {
		line += links(chain[1:], a.ranks[r].past) + fmt.Sprintf("; rank %d %s", last, a.state(last))
	}
	for _, m := range chain {
		if text := a.otherTag(m); text != "" {
			line += "; " + text
		}
	}
	others := slices.DeleteFunc(waits, func(x int) bool { return slices.Contains(chain, x) })
	if len(others) > 0 {
		what := "an operation"
		if len(others) > 1 {
			what = "operations"
		}
		line += fmt.Sprintf("; %s %s in %s as well", ranksText(others, true), be(others, a.ranks[r].past), what)
	}
	return Finding{Line: line, Trouble: true}, true
}

// chain returns a rank, the rank for which it waits, the rank for which that one waits, and so on.
func (a *analysis) chain(r int) []int {
	path := []int{r}
	for {
		to, ok := a.partner(path[len(path)-1])
		if !ok || slices.Contains(path, to) {
			return path
		}
		path = append(path, to)
	}
}

// links describes which ranks of a chain wait for which; it is empty for a single rank.
func links(chain []int, past bool) string {
	const most = 3 // links that are described
	verb := "waits"
	if past {
		verb = "waited"
	}
	var parts []string
	for i := range len(chain) - 1 {
		switch n := len(chain) - 1; {
		case i == 0:
			parts = append(parts, fmt.Sprintf("; %d %s for %d", chain[i], verb, chain[i+1]))
		case n > most && i == 1:
			parts = append(parts, fmt.Sprintf("and so on over %d ranks", n-2))
		case n > most && i < n-1:
		default:
			parts = append(parts, fmt.Sprintf("%d for %d", chain[i], chain[i+1]))
		}
	}
	return strings.Join(parts, ", ")
}

// partner returns the world rank that a rank waits for in its operation, if that is one.
func (a *analysis) partner(r int) (int, bool) {
	p := a.ranks[r]
	if p.op == nil || p.op.Kind.Collective() || p.op.Peer < 0 || p.op.Kind == WaitAny || p.op.Kind == CreateGroup {
		return 0, false
	}
	mine, ok := p.d.comm(p.op.Comm)
	if !ok {
		return 0, false
	}
	for w, q := range a.ranks {
		if q.d == nil {
			if p.op.Comm == 0 && w == p.op.Peer {
				return w, true
			}
			continue
		}
		if c, ok := q.d.comm(p.op.Comm); ok && c.Leader == mine.Leader && c.Rank == p.op.Peer {
			return w, true
		}
	}
	return 0, false
}

// otherTag says that a rank waits for a tag from a rank that has last sent it another one, which it has not received.
// It is empty otherwise.
func (a *analysis) otherTag(r int) string {
	p := a.ranks[r]
	from, ok := a.partner(r)
	if !ok || a.ranks[from].d == nil || p.op.Tag < 0 || p.op.Kind != Recv && p.op.Kind != RecvAppend && p.op.Kind != Probe && p.op.Kind != Mprobe {
		return ""
	}
	me, _ := p.d.comm(p.op.Comm)
	sends := a.ranks[from].d.Ops
	for i := len(sends) - 1; i >= 0; i-- {
		s := &sends[i]
		if s.Kind != Send && s.Kind != Ssend || s.Comm != p.op.Comm || s.Peer != me.Rank {
			continue
		}
		received := slices.ContainsFunc(p.d.Ops, func(o Operation) bool {
			return o.State == Done && o.Comm == s.Comm && (o.Tag == s.Tag || o.Tag == -1) && o.Kind != Send && o.Kind != Ssend &&
				(o.Peer == p.op.Peer || o.Peer == backend.AnySource)
		})
		if s.Tag == p.op.Tag || received {
			break
		}
		return fmt.Sprintf("rank %d waits for tag %d from rank %d, which sent tag %d", r, p.op.Tag, from, s.Tag)
	}
	return ""
}

// circle returns the ranks that wait for each other, r the lowest of them.
func (a *analysis) circle(r int) []int {
	var path []int
	for at := r; len(path) <= len(a.ranks); {
		path = append(path, at)
		next, ok := a.partner(at)
		switch {
		case !ok || next < r:
			return nil
		case next == r:
			return path
		}
		at = next
	}
	return nil
}
