package coll

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestEveryChoiceComputesItsCollective runs what is chosen, for all roots, with limits so low that
// every algorithm is chosen somewhere, and with the real ones.
func TestEveryChoiceComputesItsCollective(t *testing.T) {
	chosen := map[string]bool{}
	rng := rand.New(rand.NewPCG(2, 0))
	for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
		for n := 1; n <= 17; n++ {
			for _, count := range []int{0, 1, 3, 7, 30, 64, 200} {
				for root := range n {
					if root > 0 && (!rooted(c) || testing.Short() && root > 2) {
						break
					}
					tr := newTrial(rng, c, n, count)
					tr.root = root
					tr.commutative = rng.IntN(2) == 0
					tr.inPlace = placements(rng, n)[rng.IntN(3)]
					m, err := tr.run(rng, &small, nil)
					if err != nil {
						t.Fatalf("%v: %v", tr, err)
					}
					chosen[m.ranks[0].sched.Algorithm] = true
				}
			}
		}
	}
	for _, r := range rules {
		if !chosen[r.name] {
			t.Errorf("%s was never chosen", r.name)
		}
	}
}

// choices is the table of docs/algorithms.md: the algorithms of a collective from the shortest lengths on,
// and the KiB from which the next one is chosen.
var choices = []struct {
	coll  backend.Coll
	ranks int
	names string
	kib   []float64
}{
	{backend.Bcast, 2, "binomial", nil},
	{backend.Bcast, 6, "binomial, scatter-ring, chain", []float64{80, 460}},
	{backend.Bcast, 8, "binomial, scatter-doubling, chain", []float64{80, 660}},
	{backend.Bcast, 48, "binomial, scatter-ring, chain", []float64{360, 3100}},
	{backend.Bcast, 64, "binomial, scatter-doubling, chain", []float64{48, 6100}},
	{backend.Bcast, 1000, "binomial, scatter-ring, chain", []float64{3900, 67000}},
	{backend.Bcast, 1024, "binomial, scatter-doubling, chain", []float64{40, 102000}},
	{backend.Reduce, 2, "binomial, rabenseifner", []float64{213}},
	{backend.Reduce, 6, "binomial, ring", []float64{48}},
	{backend.Reduce, 8, "binomial, rabenseifner", []float64{48}},
	{backend.Reduce, 1000, "binomial, rabenseifner, ring", []float64{30, 8000}},
	{backend.Reduce, 1024, "binomial, rabenseifner", []float64{28}},
	{backend.Allreduce, 2, "recursive-doubling, rabenseifner", []float64{213}},
	{backend.Allreduce, 6, "recursive-doubling, ring", []float64{48}},
	{backend.Allreduce, 8, "recursive-doubling, rabenseifner", []float64{48}},
	{backend.Allreduce, 1000, "recursive-doubling, rabenseifner, ring", []float64{30, 8000}},
	{backend.Allreduce, 1024, "recursive-doubling, rabenseifner", []float64{28}},
	{backend.ReduceScatterBlock, 6, "pairwise, ring", []float64{48}},
	{backend.ReduceScatterBlock, 8, "recursive-halving, pairwise", []float64{1000}},
	{backend.ReduceScatterBlock, 64, "recursive-halving, pairwise", []float64{43000}},
	{backend.ReduceScatterBlock, 1000, "recursive-halving, ring", []float64{8000}},
	{backend.Gather, 8, "linear", nil},
	{backend.Gather, 64, "binomial, linear", []float64{9.4}},
	{backend.Gather, 1000, "binomial, linear", []float64{13.7}},
	{backend.Scatter, 8, "linear", nil},
	{backend.Scatter, 64, "binomial, linear", []float64{9.4}},
	{backend.Scatter, 1000, "binomial, linear", []float64{13.7}},
	{backend.Allgather, 6, "bruck, ring", []float64{200}},
	{backend.Allgather, 8, "recursive-doubling, ring", []float64{4300}},
	{backend.Allgather, 64, "recursive-doubling, ring", []float64{56000}},
	{backend.Allgather, 1000, "bruck, ring", []float64{103000}},
	{backend.Alltoall, 6, "spread, pairwise", []float64{480}},
	{backend.Alltoall, 8, "bruck, spread, pairwise", []float64{1, 510}},
	{backend.Alltoall, 64, "bruck, spread, pairwise", []float64{3.6, 380}},
	{backend.Alltoall, 1000, "bruck, spread, pairwise", []float64{2.6, 310}},
}

// TestChoiceChangesAtTheDocumentedLengths: the choice a tenth below and a tenth above the lengths where it
// changes.
func TestChoiceChangesAtTheDocumentedLengths(t *testing.T) {
	text, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range choices {
		names := strings.Split(c.names, ", ")
		row := fmt.Sprintf("| %v | %d | %s", c.coll, c.ranks, names[0])
		for i, kib := range c.kib {
			row += fmt.Sprintf(", from %v KiB %s", kib, names[i+1])
		}
		if row += " |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/algorithms.md has no row %s", row)
		}
		for i, name := range names {
			lo, hi := 16., float64(256<<20)
			if c.coll == backend.Allgather || c.coll == backend.ReduceScatterBlock {
				lo *= float64(c.ranks)
			}
			if i > 0 {
				lo = c.kib[i-1] * 1024 * 1.1
			}
			if i < len(c.kib) {
				hi = c.kib[i] * 1024 * 0.9
			}
			for _, bytes := range []float64{lo, hi} {
				call := &backend.Call{Coll: c.coll, Count: int(bytes) / 8, Type: word, Op: wordOp(true, sum)}
				if c.coll == backend.Allgather || c.coll == backend.ReduceScatterBlock {
					call.Count /= c.ranks
				}
				s, err := Algorithms(call, 0, c.ranks, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, got, _ := strings.Cut(s[0], "/"); got != name {
					t.Errorf("%v of %.0f bytes on %d ranks: %s, want %s", c.coll, bytes, c.ranks, got, name)
				}
				if call.Op = wordOp(false, sum); reduces(c.coll) {
					if s, err = Algorithms(call, 0, c.ranks, nil); err != nil || strings.HasSuffix(s[0], "/ring") {
						t.Errorf("%v with an operation that does not commute: %v, %v", c.coll, s, err)
					}
				}
			}
		}
	}
}

// TestBuildAsBuildsEachAlgorithm: what Algorithms names can be built, the first is what Build chooses, and
// there is an error for any other.
func TestBuildAsBuildsEachAlgorithm(t *testing.T) {
	nodes := NewNodes(9, func(r int) int { return r / 3 })
	for _, nodes := range []*Nodes{nil, nodes} {
		for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
			rng := rand.New(rand.NewPCG(23, 0))
			tr := newTrial(rng, c, 9, 20)
			tr.prepare(rng)
			names, err := Algorithms(tr.calls[1], 1, 9, nodes)
			if err != nil || len(names) == 0 {
				t.Fatalf("%v: %v, %v", c, names, err)
			}
			for i, name := range names {
				s, err := BuildAs(name, tr.calls[1], 1, 9, nodes)
				if err != nil || s.Algorithm != name || slices.Contains(names[:i], name) {
					t.Errorf("%v as %s: %v, %v", c, name, s, err)
				}
			}
			if s, err := Build(tr.calls[1], 1, 9, nodes); err != nil || s.Algorithm != names[0] {
				t.Errorf("%v: chosen %v, first of %v: %v", c, s.Algorithm, names, err)
			}
			if _, err := BuildAs("no/such", tr.calls[1], 1, 9, nodes); err == nil {
				t.Errorf("%v was built by an algorithm that there is not", c)
			}
		}
	}
}
