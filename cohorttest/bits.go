package cohorttest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/view"
)

const bitsScenario = "bits"

// bits reduces numbers of very different sizes and both signs, so that almost every
// order of operands gives other last bits, and digests the results. It also checks what
// needs no other backend: all forms and repetitions give the same bits, and so do Reduce
// with every root and each rank's part of ReduceScatterBlock.
func bits(r *Rank) {
	h := sha256.New()
	bitsOf(r, h.Write, func(x float64) float64 { return x })
	bitsOf(r, h.Write, func(x float64) float32 { return float32(x) })
	r.digest = hex.EncodeToString(h.Sum(nil)[:16])
}

func bitsOf[T floating](r *Rank, digest func([]byte) (int, error), elem func(float64) T) {
	c, n := r.Comm, r.Size
	lengths := []int{1, 3, 64, 1000, 5003}
	if !r.Short {
		lengths = append(lengths, long)
	}
	for _, m := range lengths {
		// One block for each rank, so that all reductions can use the same numbers.
		// Each rank has another seed.
		rng := seeded(fmt.Sprintf("bits of rank %d", r.Rank), m)
		block := (m + n - 1) / n
		send := filled(block*n, func(i int) T { return elem(math.Ldexp(rng.Float64()-0.5, rng.IntN(60)-30)) })
		want, recv := make([]T, len(send)), make([]T, len(send))
		part := make([]T, block)
		r.OK(cohort.Allreduce(c, send, want, cohort.Sum))
		digest(view.Bytes(want))
		same := func(what string, got, want []T) {
			equalSlices(r, got, want, "%s of %d, with the bits of Allreduce", what, len(send))
			clear(got)
		}

		r.OK(wait(cohort.Iallreduce(c, send, recv, cohort.Sum)))
		same("Iallreduce", recv, want)

		p := must(cohort.AllreduceInit(c, send, recv, cohort.Sum))
		for range 2 {
			r.OK(p.Start())
			must(p.Wait())
			same("AllreduceInit", recv, want)
		}
		r.OK(p.Close())

		copy(recv, send)
		r.OK(cohort.Allreduce(c, recv, recv, cohort.Sum))
		same("Allreduce in place", recv, want)

		for root := range n {
			r.OK(cohort.Reduce(c, send, recv, cohort.Sum, root))
			if r.Rank == root {
				same("Reduce", recv, want)
			}
		}
		r.OK(cohort.ReduceScatterBlock(c, send, part, cohort.Sum))
		same("ReduceScatterBlock", part, want[r.Rank*block:][:block])

		r.OK(cohort.Allreduce(c, send, recv, cohort.Prod))
		digest(view.Bytes(recv))
		r.OK(cohort.Scan(c, send, recv, cohort.Sum))
		digest(view.Bytes(recv))
		r.OK(cohort.Exscan(c, send, recv, cohort.Sum))
		if r.Rank > 0 {
			digest(view.Bytes(recv))
		}
	}
}
