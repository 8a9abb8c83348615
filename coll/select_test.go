package coll

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestEveryChoiceComputesItsCollective runs what is chosen, for all roots, with limits so low that
// every algorithm is chosen somewhere, and with the real ones.
func TestEveryChoiceComputesItsCollective(t *testing.T) {
	chosen := map[string]bool{}
	rng := rand.New(rand.NewPCG(2, 0))
	for c := backend.Barrier; c <= backend.Exscan; c++ {
		for n := 1; n <= 17; n++ {
			for _, count := range []int{0, 1, 3, 7, 30, 64, 200} {
				for root := range n {
					if root > 0 && (!rooted(c) || testing.Short() && root > 2) {
						break
					}
					j := newJob(rng, c, n, count)
					j.root = root
					j.commutative = rng.IntN(2) == 0
					j.inPlace = placements(rng, n)[rng.IntN(3)]
					m, err := j.run(rng, &small, nil)
					if err != nil {
						t.Fatalf("%v: %v", j, err)
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

// TestChoiceChangesAtTheDocumentedLengths: the selection at the lengths where it changes, as
// docs/algorithms.md has it.
func TestChoiceChangesAtTheDocumentedLengths(t *testing.T) {
	const k = 1 << 10
	for _, c := range []struct {
		coll  backend.Coll
		n     int
		bytes int // of the vector, or of a block
		want  string
	}{
		{backend.Bcast, 8, 12*k - 8, "bcast/binomial"},
		{backend.Bcast, 8, 12 * k, "bcast/scatter-doubling"},
		{backend.Bcast, 9, 12 * k, "bcast/scatter-ring"},
		{backend.Bcast, 7, 12 * k, "bcast/binomial"},
		{backend.Bcast, 2, 64 * k * k, "bcast/binomial"},
		{backend.Bcast, 3, 512*k - 8, "bcast/binomial"},
		{backend.Bcast, 3, 512 * k, "bcast/chain"},
		{backend.Bcast, 8, 512*k - 8, "bcast/scatter-doubling"},
		{backend.Bcast, 8, 512 * k, "bcast/scatter-ring"},
		{backend.Bcast, 8, 1024*k - 8, "bcast/scatter-ring"},
		{backend.Bcast, 8, 1024 * k, "bcast/chain"},
		{backend.Bcast, 1000, 100 * k * k, "bcast/scatter-ring"},
		{backend.Reduce, 8, 2 * k, "reduce/binomial"},
		{backend.Reduce, 8, 2*k + 8, "reduce/rabenseifner"},
		{backend.Reduce, 512, 2*k + 8, "reduce/binomial"},
		{backend.Reduce, 6, 48*k - 8, "reduce/rabenseifner"},
		{backend.Reduce, 6, 48 * k, "reduce/ring"},
		{backend.Allreduce, 5, 2 * k, "allreduce/recursive-doubling"},
		{backend.Allreduce, 5, 2*k + 8, "allreduce/rabenseifner"},
		{backend.Allreduce, 512, 4*k - 8, "allreduce/recursive-doubling"},
		{backend.Allreduce, 512, 4 * k, "allreduce/rabenseifner"},
		{backend.Allreduce, 6, 48*k - 8, "allreduce/rabenseifner"},
		{backend.Allreduce, 6, 48 * k, "allreduce/ring"},
		{backend.Allreduce, 8, 64 * k * k, "allreduce/rabenseifner"},
		{backend.ReduceScatterBlock, 8, 64*k - 8, "reduce_scatter_block/recursive-halving"},
		{backend.ReduceScatterBlock, 8, 64 * k, "reduce_scatter_block/pairwise"},
		{backend.ReduceScatterBlock, 6, 8*k - 8, "reduce_scatter_block/recursive-halving"},
		{backend.ReduceScatterBlock, 6, 8 * k, "reduce_scatter_block/ring"},
		{backend.Gather, 100, 5992, "gather/binomial"},
		{backend.Gather, 100, 6000, "gather/linear"},
		{backend.Scatter, 3, 5992, "scatter/binomial"},
		{backend.Scatter, 3, 6000, "scatter/linear"},
		{backend.Allgather, 8, 64*k - 8, "allgather/recursive-doubling"},
		{backend.Allgather, 8, 64 * k, "allgather/ring"},
		{backend.Allgather, 5, 16*k - 8, "allgather/bruck"},
		{backend.Allgather, 5, 16 * k, "allgather/ring"},
		{backend.Alltoall, 8, 256, "alltoall/bruck"},
		{backend.Alltoall, 7, 256, "alltoall/spread"},
		{backend.Alltoall, 8, 264, "alltoall/spread"},
		{backend.Alltoall, 8, 32 * k, "alltoall/spread"},
		{backend.Alltoall, 8, 32*k + 8, "alltoall/pairwise"},
	} {
		call := &backend.Call{Coll: c.coll, Count: c.bytes / 8, Type: word, Op: wordOp(true, sum)}
		s, err := Build(call, 0, c.n)
		if err != nil {
			t.Fatal(err)
		}
		if s.Algorithm != c.want {
			t.Errorf("%v of %d bytes on %d ranks: %s, want %s", c.coll, c.bytes, c.n, s.Algorithm, c.want)
		}
		if !reduces(c.coll) || c.n == 512 {
			continue
		}
		call.Op = wordOp(false, sum)
		if s, err = Build(call, 0, c.n); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(s.Algorithm, "/ring") {
			t.Errorf("%v with an operation that does not commute: %s", c.coll, s.Algorithm)
		}
	}
}
