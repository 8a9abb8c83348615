package exact

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// A column is the numbers that are added to one sum. Some columns are shorter than others: they are filled with -0, which
// changes no other sum.
func columns[T float32 | float64](rng *rand.Rand, n, depth int) [][]T {
	var all [][]T
	for _, make := range kinds[T]() {
		for range max(1, n/len(kinds[T]())) {
			all = append(all, make(rng, 2+rng.IntN(depth-2)))
		}
	}
	for _, c := range specialSums[T]() {
		if len(c.xs) > 0 {
			all = append(all, c.xs)
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// slicesOf returns slices whose elements i are a permutation of column i.
func slicesOf[T float32 | float64](rng *rand.Rand, columns [][]T) [][]T {
	depth := 0
	for _, c := range columns {
		depth = max(depth, len(c))
	}
	all := make([][]T, depth)
	for j := range all {
		all[j] = make([]T, len(columns))
	}
	for i, c := range columns {
		order := rng.Perm(depth)
		for j := range all {
			all[order[j]][i] = T(math.Copysign(0, -1))
			if j < len(c) {
				all[order[j]][i] = c[j]
			}
		}
	}
	return all
}

func differ[T float32 | float64](got, want []T) error {
	for i := range want {
		if !same(got[i], want[i]) {
			return fmt.Errorf("sum %d of %d is %v, want %v", i, len(want), got[i], want[i])
		}
	}
	return nil
}

// Any cut of the same numbers among ranks, accumulators and calls of Add, in any order, gives the nearest numbers.
func TestAccumulatorSumsAreTheNearestNumbers(t *testing.T) {
	for _, n := range []int{1, 20, 2100} {
		nearestSums[float32](t, n)
		nearestSums[float64](t, n)
	}
}

func nearestSums[T float32 | float64](t *testing.T, n int) {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	all := columns[T](rng, n, 12)
	want := make([]T, len(all))
	for i, c := range all {
		want[i] = wantSum(c)
	}
	for _, size := range []int{1, 2, 3, 5} {
		slices := slicesOf(rng, all)
		seed := rng.Uint64()
		ranks(t, size, func(world *cohort.Comm) error {
			rng := rand.New(rand.NewPCG(seed, uint64(world.Rank())))
			a, b := New[T](len(all)), New[T](len(all))
			for _, xs := range cut(slices, seed, world.Rank(), size) {
				must.OK([]*Accumulator[T]{a, b}[rng.IntN(2)].Add(xs))
			}
			recv := make([]T, len(all))
			must.OK(a.Allreduce(world, recv)) // carries, perhaps
			must.OK(a.Merge(b))
			for range 2 { // the accumulator keeps its sums
				clear(recv)
				must.OK(a.Allreduce(world, recv))
				if err := differ(recv, want); err != nil {
					return fmt.Errorf("%d ranks, %T: %w", size, want[0], err)
				}
			}
			a.Reset()
			must.OK(a.Allreduce(world, recv))
			return differ(recv, make([]T, len(all)))
		})
	}
}

// Limbs are filled to the last bit, over and over: the mantissas are all ones.
func TestLimbsDoNotOverflow(t *testing.T) {
	fullLimbs[float32](t, singleGrid.most)
	fullLimbs[float64](t, doubleGrid.most)
}

func fullLimbs[T float32 | float64](t *testing.T, most int) {
	f := formatOf[T]()
	greatest := number[T](f.inf - 1)
	var xs []T
	for e := range 40 {
		x := T(math.Ldexp(float64(greatest), -e-60)) // all shifts within a limb
		xs = append(xs, x, -x)
	}
	times := 2*most + most*3/4*2 // what was added since the last carry is too much for three ranks
	want := make([]T, len(xs))
	for _, size := range []int{1, 3} {
		for i, x := range xs {
			want[i] = nearest[T](bigOf(0).Mul(bigOf(float64(x)), bigOf(float64(size*times))))
		}
		ranks(t, size, func(world *cohort.Comm) error {
			a, o := New[T](len(xs)), New[T](len(xs))
			for i := range times / 2 {
				must.OK(errors.Join(a.Add(xs), o.Add(xs)))
				if i%500 == 0 {
					must.OK(a.Merge(New[T](len(xs))))
				}
			}
			must.OK(a.Merge(o))
			recv := make([]T, len(xs))
			must.OK(a.Allreduce(world, recv))
			return differ(recv, want)
		})
	}
}

// An accumulator that is merged with itself has every number twice.
func TestMergeWithItselfDoubles(t *testing.T) {
	ranks(t, 1, func(world *cohort.Comm) error {
		a := New[float64](4)
		must.OK(a.Add([]float64{1, -0x1p-1074, math.Copysign(0, -1), math.Inf(-1)}))
		must.OK(a.Merge(a))
		recv := make([]float64, 4)
		must.OK(a.Allreduce(world, recv))
		return differ(recv, []float64{2, -0x1p-1073, math.Copysign(0, -1), math.Inf(-1)})
	})
}

func TestWrongLengthsOfAccumulatorsAreErrors(t *testing.T) {
	a := New[float32](3)
	for what, err := range map[string]error{
		"Add": a.Add(make([]float32, 4)), "Merge": a.Merge(New[float32](2)), "Merge of nil": a.Merge(nil), "Add to a negative length": New[float32](-1).Add(nil),
	} {
		var e *cohort.OpError
		if !errors.Is(err, cohort.ErrCount) || !errors.As(err, &e) {
			t.Errorf("%s: %v, want ErrCount", what, err)
		}
	}
	ranks(t, 3, func(world *cohort.Comm) error {
		check := func(what string, err, want error) error {
			var e *cohort.OpError
			if !errors.Is(err, want) || !errors.As(err, &e) || e.Op != "exact.allreduce" {
				return fmt.Errorf("%s: rank %d: %v, want %v", what, world.Rank(), err, want)
			}
			return nil
		}
		n := 3
		if world.Rank() == 1 {
			n = 2
		}
		mine := New[float32](n)
		err := check("other length", mine.Allreduce(world, make([]float32, n)), cohort.ErrMismatch)
		want := cohort.ErrMismatch
		if n == 2 {
			want = cohort.ErrCount
		}
		err = errors.Join(err, check("long recv", mine.Allreduce(world, make([]float32, 3)), want))
		err = errors.Join(err, check("negative length", New[float32](-1).Allreduce(world, nil), cohort.ErrCount))
		empty := New[float32](0)
		return errors.Join(err, empty.Add(nil), empty.Allreduce(world, nil), world.Barrier())
	})
}

// Calls that have been made before with the same lengths allocate nothing.
func TestRepeatedCallsDoNotAllocate(t *testing.T) {
	ranks(t, 1, func(world *cohort.Comm) error {
		xs, recv := make([]float32, 5000), make([]float32, 5000)
		ys := make([]float64, 5000)
		for i := range xs {
			xs[i], ys[i] = float32(i), 1/float64(i+1)
		}
		a, o := New[float32](len(xs)), New[float32](len(xs))
		for what, call := range map[string]func() error{
			"Sum": func() error { return second(Sum(world, ys)) },
			"Dot": func() error { return second(Dot(world, xs, xs)) },
			"Accumulator": func() error {
				a.Reset()
				o.Reset()
				return errors.Join(a.Add(xs), o.Add(xs), a.Merge(o), a.Allreduce(world, recv))
			},
		} {
			if n := testing.AllocsPerRun(20, func() {
				if err := call(); err != nil {
					t.Error(err)
				}
			}); n > 0 {
				t.Errorf("%s: %v allocations", what, n)
			}
		}
		return nil
	})
}
