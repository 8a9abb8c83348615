package cohorttest

import (
	"math"
	"math/big"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
)

// Package exact on every backend.

func exactSums(r *Rank) {
	exactOf(r, math.Float64bits, func(x *big.Float) float64 { v, _ := x.Float64(); return v })
	exactOf(r, func(x float32) uint64 { return uint64(math.Float32bits(x)) }, func(x *big.Float) float32 { v, _ := x.Float32(); return v })
}

// exactOf deals the numbers of a table to the ranks in turn. The sum of all, that of all products with the next number, and those of
// the columns are compared with sums of math/big.
func exactOf[T float32 | float64](r *Rank, bits func(T) uint64, nearest func(*big.Float) T) {
	const rows, columns = 7, 1100
	rng := seeded("exact", rows)
	big0 := func() *big.Float { return new(big.Float).SetPrec(1000) }
	sum, dot, sums := big0(), big0(), make([]*big.Float, columns)
	a := exact.New[T](columns)
	var mine, next []T
	for i := range rows {
		xs := filled(columns, func(int) T { return T(math.Ldexp(rng.Float64()-0.5, rng.IntN(240)-120)) })
		ys := append(xs[1:len(xs):len(xs)], -xs[0])
		for j, x := range xs {
			if sums[j] == nil {
				sums[j] = big0()
			}
			b := big0().SetFloat64(float64(x))
			sum.Add(sum, b)
			sums[j].Add(sums[j], b)
			dot.Add(dot, big0().Mul(b, big0().SetFloat64(float64(ys[j]))))
		}
		if i%r.Size == r.Rank {
			mine, next = append(mine, xs...), append(next, ys...)
			r.OK(a.Add(xs))
		}
	}
	check := func(what string, got T, want *big.Float) {
		equal(r, bits(got), bits(nearest(want)), "%s: got %v, want %v, as bits", what, got, nearest(want))
	}
	check("Sum", must(exact.Sum(r.Comm, mine)), sum)
	check("Dot", must(exact.Dot(r.Comm, mine, next)), dot)
	recv := make([]T, columns)
	r.OK(a.Allreduce(r.Comm, recv))
	for j, got := range recv {
		check("Accumulator", got, sums[j])
	}
}

// exactLengths has lengths that differ, on one rank or between ranks. The communicator stays usable.
func exactLengths(r *Rank) {
	n, want := 3, cohort.ErrMismatch
	if r.Rank == 1 {
		n, want = 4, cohort.ErrCount
	}
	_, err := exact.Dot(r.Comm, make([]float32, 3), make([]float32, n))
	r.Is(err, want, "Dot of slices that differ on rank 1")
	r.Is(exact.New[float64](3).Allreduce(r.Comm, make([]float64, n)), want, "Allreduce with a wrong recv on rank 1")
	r.Is(exact.New[float64](n).Allreduce(r.Comm, make([]float64, n)), cohort.ErrMismatch, "Allreduce with another accumulator on rank 1").names("rank 0", "rank 1")
	equal(r, must(exact.Sum(r.Comm, []float64{1})), float64(r.Size), "Sum afterwards")
}
