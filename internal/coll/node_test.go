package coll

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// placement is where n ranks are.
type placement struct {
	name string
	of   []int
}

func (p placement) nodeOf(rank int) int { return p.of[rank] }

// blocks has k consecutive ranks on each node, perhaps fewer on the last.
func blocks(n, k int) placement {
	p := placement{name: fmt.Sprintf("blocks of %d", k)}
	for r := range n {
		p.of = append(p.of, r/k)
	}
	return p
}

// spots are placements of n ranks; the numbers of nodes are of any kind.
func spots(rng *rand.Rand, n int) []placement {
	all := []placement{blocks(n, 1), blocks(n, n), blocks(n, 2), blocks(n, 3), blocks(n, 4), blocks(n, 8)}
	for _, nodes := range []int{2, 3, 4} {
		p := placement{name: fmt.Sprintf("cyclic over %d", nodes)}
		for r := range n {
			p.of = append(p.of, 1000-r%nodes)
		}
		all = append(all, p)
	}
	uneven := placement{name: "all but one", of: make([]int, n)}
	uneven.of[rng.IntN(n)] = -1
	all = append(all, uneven)
	for _, nodes := range []int{2, 3, 5, max(1, n/2)} {
		p := placement{name: fmt.Sprintf("random over %d", nodes)}
		for range n {
			p.of = append(p.of, rng.IntN(nodes))
		}
		all = append(all, p)
	}
	if n <= 12 {
		return all
	}
	// Of many ranks, each number has a third of them.
	var some []placement
	for i, p := range all {
		if (i+n)%3 == 0 {
			some = append(some, p)
		}
	}
	return some
}

// long reports whether a trial's messages are long enough that only their bytes matter.
func long(tr *trial, m *machine) bool {
	return tr.coll == backend.Bcast && tr.count*tr.elem >= 64 || strings.HasSuffix(m.ranks[0].sched.Algorithm, "/nodes-ring")
}

// without returns the algorithm that does the same as one for nodes where there are none, nil for the one
// that is chosen.
func without(name string) *rule {
	same := map[string]string{"reduce/nodes": "reduce/binomial", "allreduce/nodes": "allreduce/recursive-doubling",
		"reduce_scatter_block/recursive-halving": "reduce_scatter_block/pairwise"}[name]
	if i := slices.IndexFunc(rules[:], func(r rule) bool { return r.name == same }); i >= 0 {
		return &rules[i]
	}
	return nil
}

// TestAlgorithmsForNodesSendNoMoreAcross runs what is chosen for ranks on several nodes. The results are those
// that every algorithm has to have, and an algorithm for nodes sends no more across than without nodes.
func TestAlgorithmsForNodesSendNoMoreAcross(t *testing.T) {
	for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(20, uint64(c)))
			placed := 0
			for _, n := range append([]int{1}, ranks(t)...) {
				for _, p := range spots(rng, n) {
					for _, count := range lengths(c, n) {
						tr := newTrial(rng, c, n, count)
						tr.commutative = rng.IntN(2) == 0
						tr.inPlace = placements(rng, n)[rng.IntN(3)]
						tr.root = rng.IntN(n)
						if !reduces(c) && count%2 == 1 {
							tr.elem = 3
						}
						tr.nodes = NewNodes(n, p.nodeOf)
						m, err := tr.run(rng, &small, nil)
						if err != nil {
							t.Fatalf("%v, %s, %v: %v", tr, p.name, p.of, err)
						}
						name := m.ranks[0].sched.Algorithm
						halving := name == "reduce_scatter_block/recursive-halving" && tr.nodes != nil && tr.nodes.halving < tr.nodes.pairwise
						if !strings.Contains(name, "/nodes") && !halving {
							continue // as without nodes
						}
						placed++
						tr.nodes = nil
						flat, err := tr.run(rng, &small, without(name))
						if err != nil {
							t.Fatalf("%v: %v", tr, err)
						}
						got, most := m.across(p.nodeOf), flat.across(p.nodeOf)
						if got.messages > most.messages && !long(tr, m) && !halving || got.bytes > most.bytes {
							t.Errorf("%v, %s %v: %s sends %+v across, %s %+v", tr, p.name, p.of,
								m.ranks[0].sched.Algorithm, got, flat.ranks[0].sched.Algorithm, most)
						}
					}
				}
			}
			if placed == 0 && slices.ContainsFunc(placedRules[:], func(r placedRule) bool { return r.coll == c && strings.Contains(r.name, "/nodes") }) {
				t.Error("no algorithm for nodes was chosen")
			}
		})
	}
}
