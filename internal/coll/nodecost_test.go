package coll

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// spread is what the formulas of the algorithms for nodes are of: n ranks on N
// nodes; m bytes as in size; s segments of a chain; the ranks of the root's node; Σ
// k(n−k) over the nodes' k ranks; what the reductions move.
type spread struct{ n, nodes, log, m, s, root, pairs, fewest, shared, pieces, borders int }

// acrossCost is a row of the table of nodes in docs/algorithms.md.
type acrossCost struct {
	name         string
	messagesText string
	messages     func(z spread) int
	bytesText    string
	bytes        func(z spread) int
}

func allNodes(z spread) int  { return z.m * (z.nodes - 1) }
func logNodes(z spread) int  { return z.nodes * z.log }
func lessOne(z spread) int   { return z.nodes - 1 }
func elsewhere(z spread) int { return z.m * (z.n - z.root) }

var acrossCosts = []acrossCost{
	{"barrier/nodes", "N ⌈log N⌉", logNodes, "0", func(z spread) int { return 0 }},
	{"bcast/nodes-chain", "s (N−1)", func(z spread) int { return z.s * (z.nodes - 1) }, "m (N−1)", allNodes},
	{"bcast/nodes", "N−1", lessOne, "m (N−1)", allNodes},
	{"reduce/nodes", "c", func(z spread) int { return z.fewest }, "m c", func(z spread) int { return z.m * z.fewest }},
	{"allreduce/nodes", "x", func(z spread) int { return z.shared }, "m x", func(z spread) int { return z.m * z.shared }},
	{"allreduce/nodes-ring", "(n−1) h + (N−1) t", func(z spread) int { return (z.n-1)*z.borders + (z.nodes-1)*z.pieces },
		"m h (n−1)/n + m (N−1)", func(z spread) int { return z.m*z.borders*(z.n-1)/z.n + z.m*(z.nodes-1) }},
	{"gather/nodes", "N−1", lessOne, "m (n−k)", elsewhere},
	{"scatter/nodes", "N−1", lessOne, "m (n−k)", elsewhere},
	{"allgather/nodes", "N ⌈log N⌉", logNodes, "m (N−1)", allNodes},
	{"allgather/nodes-ring", "(N−1) t", func(z spread) int { return (z.nodes - 1) * z.pieces }, "m (N−1)", allNodes},
	{"allgatherv/nodes", "N ⌈log N⌉", logNodes, "m (N−1)", allNodes},
	{"allgatherv/nodes-ring", "(N−1) t", func(z spread) int { return (z.nodes - 1) * z.pieces }, "m (N−1)", allNodes},
	{"alltoall/nodes", "N (N−1)", func(z spread) int { return z.nodes * (z.nodes - 1) }, "m Σ k(n−k)", func(z spread) int { return z.m * z.pairs }},
}

// joined calls f for every value of the tree over n ranks that is not a rank's own, the
// operands' before it: with the ranks of both operands.
func joined(n int, f func(left, right []int)) {
	p := 1
	for 2*p <= n {
		p *= 2
	}
	var row [][]int
	for r := 0; r < n; r++ {
		if r < 2*(n-p) {
			f([]int{r}, []int{r + 1})
			row = append(row, []int{r, r + 1})
			r++
			continue
		}
		row = append(row, []int{r})
	}
	for len(row) > 1 {
		var up [][]int
		for i := 0; i < len(row); i += 2 {
			f(row[i], row[i+1])
			up = append(up, slices.Concat(row[i], row[i+1]))
		}
		row = up
	}
}

// fewest is the least number of values that can cross when the tree's are each
// computed on some node and the result is wanted on one: of all choices, by dynamic
// programming over where a value is.
//
// Sankoff: Minimal mutation trees of sequences. SIAM Journal on Applied Mathematics
// 28(1), 1975.
func fewest(of []int, nodes, want int) int {
	cost := map[string][]int{}
	key := func(ranks []int) string { return fmt.Sprint(ranks) }
	for r := range of {
		c := slices.Repeat([]int{1}, nodes)
		c[of[r]] = 0
		cost[key([]int{r})] = c
	}
	joined(len(of), func(left, right []int) {
		c := make([]int, nodes)
		for i := range c {
			c[i] = cost[key(left)][i] + cost[key(right)][i]
		}
		least := slices.Min(c) + 1 // computed there, and moved
		for i := range c {
			c[i] = min(c[i], least)
		}
		cost[key(slices.Concat(left, right))] = c
	})
	all := make([]int, len(of))
	for r := range all {
		all[r] = r
	}
	return cost[key(all)][want]
}

// shared is what crosses when each node with a part in a value of the tree is to
// know it: for every value, one message to each node that has a part in only one of its
// operands. Of the pairs that ranks are folded in, only the first one's node goes on;
// the other gets the result at the end if it has no other part.
func shared(of []int) (messages int) {
	parts := map[string]map[int]bool{}
	key := func(ranks []int) string { return fmt.Sprint(ranks) }
	for r, node := range of {
		parts[key([]int{r})] = map[int]bool{node: true}
	}
	p := 1 << (bits.Len(uint(len(of))) - 1)
	joined(len(of), func(left, right []int) {
		l, r := parts[key(left)], parts[key(right)]
		both := map[int]bool{}
		fold := len(left) == 1 && len(right) == 1 && right[0] < 2*(len(of)-p)
		for node := range l {
			both[node] = true
			if !r[node] {
				messages++
			}
		}
		for node := range r {
			if !fold {
				both[node] = true
				if !l[node] {
					messages++
				}
			}
		}
		all := slices.Concat(left, right)
		if parts[key(all)] = both; len(all) < len(of) {
			return
		}
		for _, node := range of {
			if !both[node] {
				both[node] = true
				messages++
			}
		}
	})
	return messages
}

// TestTrafficAcrossNodesMatchesTheFormulas runs the algorithms for nodes with blocks of equal length and
// compares what crosses with the formulas.
func TestTrafficAcrossNodesMatchesTheFormulas(t *testing.T) {
	names := map[string]bool{}
	for i := range placedRules {
		r := &placedRules[i].rule
		k := slices.IndexFunc(acrossCosts, func(c acrossCost) bool { return c.name == r.name })
		if k < 0 {
			if !slices.Contains(ruleNames(), r.name) {
				t.Errorf("%s has no formula", r.name)
			}
			continue
		}
		names[r.name] = true
		want := acrossCosts[k]
		rng := rand.New(rand.NewPCG(21, uint64(i)))
		for _, n := range ranks(t) {
			for _, p := range spots(rng, n) {
				nodes := NewNodes(n, p.nodeOf)
				if nodes == nil || r.needs == ring && isPow2(n) {
					continue
				}
				tr := &trial{coll: r.coll, n: n, count: 3, elem: 8, inPlace: make([]bool, n), root: rng.IntN(n), nodes: nodes}
				switch r.name {
				case "barrier/nodes":
					tr.count = 0
				case "bcast/nodes-chain":
					tr.count = 40
				case "allgather/nodes-ring":
					tr.count = 20
				case "allgatherv/nodes-ring":
					tr.counts, tr.count = slices.Repeat([]int{20}, n), 20*n
				case "allgatherv/nodes":
					tr.counts, tr.count = slices.Repeat([]int{3}, n), 3*n
				}
				if r.name == "allreduce/nodes-ring" {
					tr.count = 3 * n
				}
				if reduces(r.coll) {
					tr.f, tr.commutative = mix, r.needs == ring
				}
				z := spread{n: n, nodes: nodes.Size(), log: bits.Len(uint(nodes.Size() - 1)), m: 8 * tr.count}
				if r.coll == backend.Allgather {
					z.m *= n
				}
				z.s = (z.m + small.segment - 1) / small.segment
				numbers := make([]int, n)
				for r := range n {
					numbers[r] = nodes.of[r]
					if p.of[r] != p.of[(r+1)%n] {
						z.borders++
					}
				}
				for _, m := range nodes.members {
					z.pairs += len(m) * (n - len(m))
					z.pieces += (len(m)*z.m/n + max(small.segment, z.m/n) - 1) / max(small.segment, z.m/n)
				}
				z.root = len(nodes.members[numbers[tr.root]])
				switch r.coll {
				case backend.Reduce:
					z.fewest = fewest(numbers, z.nodes, numbers[tr.root])
				case backend.Allreduce:
					z.shared = shared(numbers)
				}
				m, err := tr.run(rng, &small, r)
				if err != nil {
					t.Fatalf("%v, %s %v: %v", tr, p.name, p.of, err)
				}
				got := m.across(p.nodeOf)
				if got.messages != want.messages(z) || got.bytes != want.bytes(z) {
					t.Errorf("%s of %d ranks, %s %v: %+v across, %s and %s are %d and %d", r.name, n, p.name, p.of, got,
						want.messagesText, want.bytesText, want.messages(z), want.bytes(z))
				}
			}
		}
	}
	for _, c := range acrossCosts {
		if !names[c.name] {
			t.Errorf("no algorithm %s", c.name)
		}
	}
}

// TestAlignedNodesSendOneValueEach: with as many consecutive ranks on each node as a power of two,
// one value of each node goes across: N log N messages of an Allreduce, where every rank
// has log N without nodes, and N-1 of a Reduce.
func TestAlignedNodesSendOneValueEach(t *testing.T) {
	for _, k := range []int{2, 4, 8} {
		for _, nodes := range []int{2, 4, 8} {
			of := blocks(k*nodes, k).of
			if got, want := shared(of), nodes*(bits.Len(uint(nodes))-1); got != want {
				t.Errorf("%d ranks on %d nodes: allreduce sends %d, want %d", k*nodes, nodes, got, want)
			}
			if got := fewest(of, nodes, nodes-1); got != nodes-1 {
				t.Errorf("%d ranks on %d nodes: reduce sends %d, want %d", k*nodes, nodes, got, nodes-1)
			}
		}
	}
}

// TestFormulasForNodesAreDocumented: docs/algorithms.md has the formulas that were checked.
func TestFormulasForNodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range acrossCosts {
		if row := fmt.Sprintf("| `%s` | %s | %s |", c.name, c.messagesText, c.bytesText); !strings.Contains(string(text), row) {
			t.Errorf("there is no row that begins with %s", row)
		}
	}
}

// TestSchedulesForNodesMatchTraces compares a few schedules with what testdata/nodes has.
func TestSchedulesForNodesMatchTraces(t *testing.T) {
	for _, c := range []struct {
		algorithm string
		of        []int
		count     int
		root      int
	}{
		{"barrier/nodes", []int{0, 0, 0, 1, 1}, 0, -1},
		{"bcast/nodes", []int{0, 0, 0, 1, 1, 1}, 2, 4},
		{"allreduce/nodes", []int{0, 0, 0, 1, 1, 1}, 1, -1},
		{"allgather/nodes-ring", []int{0, 1, 0, 1}, 10, -1},
	} {
		r := &placedRules[slices.IndexFunc(placedRules[:], func(r placedRule) bool { return r.name == c.algorithm })].rule
		n := len(c.of)
		tr := &trial{coll: r.coll, n: n, count: c.count, elem: 8, root: c.root, inPlace: make([]bool, n)}
		tr.nodes = NewNodes(n, func(r int) int { return c.of[r] })
		if reduces(r.coll) {
			tr.f = mix
		}
		m, err := tr.run(rand.New(rand.NewPCG(22, 0)), &small, r)
		if err != nil {
			t.Errorf("%v: %v", tr, err)
			continue
		}
		var w strings.Builder
		fmt.Fprintf(&w, "%v of %d ranks on the nodes %v, count %d, elements of 8 bytes", tr.coll, n, c.of, tr.count)
		if c.root >= 0 {
			fmt.Fprintf(&w, ", root %d", c.root)
		}
		w.WriteByte('\n')
		for rank, e := range m.ranks {
			fmt.Fprintf(&w, "\nrank %d: %v", rank, e.sched)
		}
		file := filepath.Join("testdata", "nodes", strings.ReplaceAll(strings.Replace(c.algorithm, "/nodes", "", 1), "/", "-")+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(w.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != w.String() {
			t.Errorf("%s is not what is written in %s; got\n%s", c.algorithm, file, w.String())
		}
	}
}
