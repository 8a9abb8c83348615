package exact

import (
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func random[T float32 | float64](n int) []T {
	rng := rand.New(rand.NewPCG(1, 1))
	xs := make([]T, n)
	for i := range xs {
		xs[i] = T(rng.NormFloat64())
	}
	return xs
}

var sink float64

// The loops are functions of their own, because b.Loop keeps its variables in memory.

func addUp(xs []float64) (s float64) {
	for _, x := range xs {
		s += x
	}
	return s
}

func addSquares(xs []float64) (s float64) {
	for _, x := range xs {
		s += x * x
	}
	return s
}

func addTo[T float32 | float64](sums, xs []T) {
	for i, x := range xs {
		sums[i] += x
	}
}

// BenchmarkSum adds 10^7 numbers of one rank, beside a loop that adds them.
func BenchmarkSum(b *testing.B) {
	xs := random[float64](1e7)
	ranks(b, 1, func(world *cohort.Comm) error {
		b.Run("loop", func(b *testing.B) {
			for b.Loop() {
				sink = addUp(xs)
			}
		})
		b.Run("Sum", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Sum(world, xs); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("dot loop", func(b *testing.B) {
			for b.Loop() {
				sink = addSquares(xs)
			}
		})
		b.Run("Dot", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Dot(world, xs, xs); err != nil {
					b.Fatal(err)
				}
			}
		})
		return nil
	})
}

// BenchmarkAdd adds 10^6 numbers to as many sums, beside a loop.
func BenchmarkAdd(b *testing.B) {
	b.Run("float32", benchmarkAdd[float32])
	b.Run("float64", benchmarkAdd[float64])
}

func benchmarkAdd[T float32 | float64](b *testing.B) {
	xs := random[T](1e6)
	b.Run("loop", func(b *testing.B) {
		sums := make([]T, len(xs))
		for b.Loop() {
			addTo(sums, xs)
		}
	})
	b.Run("Add", func(b *testing.B) {
		b.ReportAllocs()
		a := New[T](len(xs))
		for b.Loop() {
			if err := a.Add(xs); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAllreduce adds four slices of 10^6 numbers on each of two ranks and then all of them, beside a loop and
// cohort.Allreduce.
func BenchmarkAllreduce(b *testing.B) {
	b.Run("float32", benchmarkAllreduce[float32])
	b.Run("float64", benchmarkAllreduce[float64])
}

func benchmarkAllreduce[T float32 | float64](b *testing.B) {
	const ranksOf, slices = 2, 4
	run := func(name string, step func(a *Accumulator[T], sums, xs []T, world *cohort.Comm) error) {
		b.Run(name, func(b *testing.B) {
			ranks(b, ranksOf, func(world *cohort.Comm) error {
				xs := random[T](1e6)
				sums, a := make([]T, len(xs)), New[T](len(xs))
				must.OK(step(a, sums, xs, world))
				if world.Rank() == 0 {
					b.ResetTimer()
				}
				for range b.N {
					must.OK(step(a, sums, xs, world))
				}
				return nil
			})
		})
	}
	run("loop and Allreduce", func(_ *Accumulator[T], sums, xs []T, world *cohort.Comm) error {
		clear(sums)
		for range slices {
			addTo(sums, xs)
		}
		return cohort.Allreduce(world, sums, sums, cohort.Sum)
	})
	run("Accumulator", func(a *Accumulator[T], sums, xs []T, world *cohort.Comm) error {
		a.Reset()
		for range slices {
			if err := a.Add(xs); err != nil {
				return err
			}
		}
		return a.Allreduce(world, sums)
	})
	run("Allreduce alone", func(_ *Accumulator[T], sums, xs []T, world *cohort.Comm) error {
		return cohort.Allreduce(world, xs, sums, cohort.Sum)
	})
	run("exact Allreduce alone", func(a *Accumulator[T], sums, xs []T, world *cohort.Comm) error {
		if a.adds == 0 {
			if err := a.Add(xs); err != nil {
				return err
			}
		}
		return a.Allreduce(world, sums)
	})
}
