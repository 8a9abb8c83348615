package flight

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// messages says who waits for whom in messages.
func (a *analysis) messages() (Finding, bool) {
	for r := range a.ranks {
		if circle := a.circle(r); len(circle) > 0 {
			var parts []string
			var longest time.Duration
			past := true
			for _, m := range circle {
				past = past && a.ranks[m].past
			}
			for _, m := range circle {
				p := a.ranks[m]
				parts = append(parts, fmt.Sprintf("rank %d %s in %s", m, be([]int{m}, past), a.describe(p.d, p.op)))
				longest = max(longest, p.wait)
			}
			return Finding{strings.Join(parts, ", ") + ": each waits for the next" + waiting(longest), true}, true
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
	// The one that has waited longest, and what the rank it waits for does.
	r := slices.MaxFunc(waits, func(x, y int) int { return int(a.ranks[x].wait - a.ranks[y].wait) })
	line := fmt.Sprintf("rank %d %s", r, a.state(r))
	if to, ok := a.partner(r); ok && to != r {
		line += fmt.Sprintf("; rank %d %s", to, a.state(to))
	}
	if n := len(waits) - 1; n > 0 {
		line += fmt.Sprintf("; %s in operations as well", ranksText(slices.DeleteFunc(waits, func(x int) bool { return x == r }), false)+" "+be(waits[:n], a.ranks[r].past))
	}
	return Finding{line, true}, true
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
