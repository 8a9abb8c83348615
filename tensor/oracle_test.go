package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

// Reductions of random numbers are as close to the exact result as the type's rounding allows, in
// any order. Half-precision types have their own test.
func TestReductionsAreWithinRoundingBound(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, func(_ *testing.T, world *cohort.Comm) error { return oracles(world, 300) })
}

// oracles checks reductions of n numbers on each rank. TestCollectivesOverProcesses runs it over
// the other backends.
func oracles(world *cohort.Comm, n int) error {
	l, err := newLab(world, small, soft.Config{})
	if err != nil {
		return err
	}
	return l.close(errors.Join(
		tryOracle(l, floating[float32]{0x1p-24, func(re, _ float64) float32 { return float32(re) },
			func(x float32) []float64 { return []float64{float64(x)} }}, n),
		tryOracle(l, floating[float64]{0x1p-53, func(re, _ float64) float64 { return re },
			func(x float64) []float64 { return []float64{x} }}, n),
		tryOracle(l, floating[complex64]{0x1p-24, func(re, im float64) complex64 { return complex64(complex(re, im)) },
			func(x complex64) []float64 { return []float64{float64(real(x)), float64(imag(x))} }}, n),
		tryOracle(l, floating[complex128]{0x1p-53, func(re, im float64) complex128 { return complex(re, im) },
			func(x complex128) []float64 { return []float64{real(x), imag(x)} }}, n),
	))
}

// floating is a type whose operations round.
type floating[T cohort.Number] struct {
	unit  float64 // the largest relative error of one rounding
	of    func(re, im float64) T
	parts func(T) []float64
}

// exact converts a float64 to a number whose sums and products of a few terms are exact, too.
func exact(x float64) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(x) }

// oracle returns the parts of the exact result of an operation, and a bound for the error of a
// rounded result. After n-1 operations of relative error at most u, in any order, the bound is
// (1+u)^(n-1)-1 of the product, or of the sum of absolute values (Higham, Accuracy and Stability of
// Numerical Algorithms, 2002, sections 3.1 and 4.2). A product of complex numbers has an error of
// sqrt(2)*2u/(1-2u) (3.6) of its absolute value.
func (v floating[T]) oracle(op Op, numbers []T) (want []*big.Float, bound []float64) {
	roundings, unit := len(numbers)-1, v.unit
	var sizes []float64
	for i, x := range numbers {
		var p []*big.Float
		for _, f := range v.parts(x) {
			p = append(p, exact(f))
		}
		if i == 0 {
			want = p
			for k := range p {
				sizes = append(sizes, math.Abs(v.parts(x)[k]))
			}
			continue
		}
		switch {
		case op == Prod && len(p) == 1:
			want[0] = exact(0).Mul(want[0], p[0])
		case op == Prod:
			a, b, c, d := want[0], want[1], p[0], p[1]
			want = []*big.Float{
				exact(0).Sub(exact(0).Mul(a, c), exact(0).Mul(b, d)),
				exact(0).Add(exact(0).Mul(a, d), exact(0).Mul(b, c)),
			}
		case op == Min && p[0].Cmp(want[0]) < 0, op == Max && p[0].Cmp(want[0]) > 0:
			want = p
		case op == Sum || op == Average:
			for k := range want {
				want[k] = exact(0).Add(want[k], p[k])
				sizes[k] += math.Abs(v.parts(x)[k])
			}
		}
	}
	switch op {
	case Min, Max:
		return want, make([]float64, len(want))
	case Average:
		roundings++
		for k := range want {
			want[k] = exact(0).Quo(want[k], exact(float64(len(numbers))))
			sizes[k] /= float64(len(numbers))
		}
	case Prod:
		var all float64
		for _, p := range want {
			f, _ := p.Float64()
			all = math.Hypot(all, f)
		}
		for k := range sizes {
			sizes[k] = all
		}
		if len(want) == 2 {
			unit = math.Sqrt2 * 2 * unit / (1 - 2*unit)
		}
	}
	for _, s := range sizes {
		bound = append(bound, s*math.Expm1(float64(roundings)*math.Log1p(unit))*(1+0x1p-40)) // the bound itself is rounded
	}
	return want, bound
}

// tryOracle does all reductions of n numbers of each rank, and of one block of n for each rank.
func tryOracle[T cohort.Number](l *lab, v floating[T], n int) error {
	random := rand.New(rand.NewPCG(11, uint64(n))) // the same on all ranks
	data := make([][]T, l.size)                    // of all ranks
	for i := range l.size * n {
		for r := range data {
			near := math.Ldexp(1, random.IntN(17)-8)
			if i%3 == 0 { // of one size, so that sums cancel
				near = 1
			}
			data[r] = append(data[r], v.of(near*random.NormFloat64(), near*random.NormFloat64()))
		}
	}
	root, ops := n%l.size, []Op{Sum, Prod, Average}
	if len(v.parts(data[0][0])) == 1 {
		ops = append(ops, Min, Max)
	}
	for _, p := range []placement{placements[0], placements[2]} {
		for _, op := range ops {
			for _, c := range []struct {
				name   string
				sent   int // elements
				lo     int // the first element of the result
				unused bool
				do     func(send, recv *Tensor[T]) error
			}{
				{"Allreduce", n, 0, false, func(a, b *Tensor[T]) error { return Allreduce(l.c, a, b, op) }},
				{"Reduce", n, 0, l.rank != root, func(a, b *Tensor[T]) error { return Reduce(l.c, a, b, op, root) }},
				{"ReduceScatter", l.size * n, l.rank * n, false, func(a, b *Tensor[T]) error { return ReduceScatter(l.c, a, b, op) }},
			} {
				got, err := oracleResult(l, p, data[l.rank][:c.sent], n, c.do)
				if err == nil && !c.unused {
					err = v.near(op, data, c.lo, got)
				}
				if err != nil {
					return fmt.Errorf("%s %v of %s, %d ranks, %s: %w", c.name, op, typeName[T](), l.size, p.name, err)
				}
			}
		}
	}
	return nil
}

func oracleResult[T cohort.Number](l *lab, p placement, send []T, n int, do func(send, recv *Tensor[T]) error) ([]T, error) {
	var canary T
	in, out := p.where(l)
	a, err := hold(in, send, canary, len(send))
	b, err2 := hold(out, make([]T, n), canary, n)
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	err = do(a.t, b.t)
	_, err2 = a.drop(canary)
	got, err3 := b.drop(canary)
	return got, errors.Join(err, err2, err3)
}

// near returns an error unless a result, which starts at element lo of the ranks' data, is within
// the bound. It must also have been rounded somewhere, or the test would show nothing.
func (v floating[T]) near(op Op, data [][]T, lo int, got []T) error {
	rounded := 0
	numbers := make([]T, len(data))
	for i, x := range got {
		for r := range data {
			numbers[r] = data[r][lo+i]
		}
		want, bound := v.oracle(op, numbers)
		for k, f := range v.parts(x) {
			off, _ := exact(0).Sub(exact(f), want[k]).Float64()
			if !(math.Abs(off) <= bound[k]) {
				return fmt.Errorf("element %d is %v, want %v: off by %v, and at most by %v", i, x, want[k].Text('g', 20), off, bound[k])
			}
			if off != 0 {
				rounded++
			}
		}
	}
	if combined := op != Min && op != Max && len(data) > 1; combined && rounded < len(got)/4 {
		return fmt.Errorf("only %d of %d results were rounded", rounded, len(got))
	}
	return nil
}
