package tensor

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/test/soft"
	"github.com/cohort-hpc/cohort/internal/view"
)

// halfType holds all finite non-negative numbers of a half-precision type, in ascending order, from
// the type's definition.
type halfType[T cohort.Float16 | cohort.BFloat16] struct {
	bits   func(x T) float64
	values []float64 // in ascending order
}

// newHalfType computes the values from the bits of exponent and fraction (IEEE 754-2019, 3.4).
func newHalfType[T cohort.Float16 | cohort.BFloat16](exponent, fraction int) halfType[T] {
	bias := 1<<(exponent-1) - 1
	value := func(h uint16) float64 {
		e, f := int(h>>fraction), float64(h&(1<<fraction-1))
		if e == 0 {
			return math.Ldexp(f, 1-bias-fraction)
		}
		return math.Ldexp(f+math.Ldexp(1, fraction), e-bias-fraction)
	}
	var v halfType[T]
	infinite := uint16((1<<exponent - 1) << fraction)
	for h := range infinite {
		v.values = append(v.values, value(h))
	}
	v.bits = func(x T) float64 {
		h := uint16(x)
		a := math.Inf(1)
		if m := h & 0x7fff; m < infinite {
			a = value(m)
		} else if m > infinite {
			return math.NaN()
		}
		if h>>15 != 0 {
			return -a
		}
		return a
	}
	return v
}

// ulp returns the distance of the two numbers around x.
func (v halfType[T]) ulp(x float64) float64 {
	i := sort.SearchFloat64s(v.values, math.Abs(x))
	i = max(min(i, len(v.values)-1), 1)
	return v.values[i] - v.values[i-1]
}

// nearest returns the number nearest to x, ties to an even fraction.
func (v halfType[T]) nearest(x float64) float64 {
	a := math.Abs(x)
	i := sort.SearchFloat64s(v.values, a)
	if i == len(v.values) { // beyond the greatest: as if there were another one
		top := v.values[i-1] + v.ulp(v.values[i-1])/2
		if a >= top {
			return math.Copysign(math.Inf(1), x)
		}
		return math.Copysign(v.values[i-1], x)
	}
	if v.values[i] != a {
		below, above := a-v.values[i-1], v.values[i]-a
		if below < above || below == above && (i-1)%2 == 0 {
			i--
		}
	}
	return math.Copysign(v.values[i], x)
}

// Sums, products and averages of half-precision numbers are within half a unit in the last place of
// the float32 result, and the nearest number where that result is exact. They have the same bits on
// every device.
func TestHalfPrecisionRounding(t *testing.T) {
	onRanks(t, []int{1, 2, 3, 4}, halvesProgram) // TestCollectivesOverProcesses runs it, too
}

func halvesProgram(_ *testing.T, world *cohort.Comm) error {
	l := must.Get(newLab(world, small, soft.Config{}))
	return l.close(errors.Join(
		tryHalf(l, newHalfType[cohort.Float16](5, 10), cohort.ToFloat16, 0x7c00),
		tryHalf(l, newHalfType[cohort.BFloat16](8, 7), cohort.ToBFloat16, 0x7f80),
	))
}

func tryHalf[T cohort.Float16 | cohort.BFloat16](l *lab, v halfType[T], of func(float32) T, infinite uint16) error {
	const n = 1500
	data := make([][]T, l.size) // of all ranks
	random := rand.New(rand.NewPCG(3, 4))
	for r := range data {
		for i := range n {
			var x T
			switch i % 3 {
			case 0: // any finite number
				x = T(random.Uint32N(uint32(infinite)) | random.Uint32N(2)<<15)
			case 1: // of one size: sums that cancel, and are rounded
				x = of(float32(random.NormFloat64()))
			default: // sums that are exact in float32
				x = of(float32(random.IntN(4096)-2048) / 64)
			}
			data[r] = append(data[r], x)
		}
	}
	for _, op := range []Op{Sum, Prod, Average} {
		var first []T
		for _, p := range placements {
			got, err := halfResult(l, p, data[l.rank], op)
			if err != nil {
				return fmt.Errorf("%v, %s: %w", op, p.name, err)
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				return fmt.Errorf("%v: on %s the bits are not those on the processor", op, p.name)
			}
		}
		tested := 0
		for i, x := range first {
			// Partial results in any order are no larger than most, and products no smaller than
			// least.
			exact := v.bits(data[0][i])
			size, most, least := math.Abs(exact), max(math.Abs(exact), 1), min(math.Abs(exact), 1)
			for r := 1; r < l.size; r++ {
				y := v.bits(data[r][i])
				if op == Prod {
					exact *= y
					size, most, least = math.Abs(exact), most*max(math.Abs(y), 1), least*min(math.Abs(y), 1)
				} else {
					exact += y
					size += math.Abs(y)
					most = size
				}
			}
			steps := float64(l.size - 1)
			if op == Average {
				exact /= float64(l.size)
				steps++
			}
			slack := steps*size*math.Ldexp(1, -24) + steps*math.Ldexp(1, -149)
			got := v.bits(x)
			if math.Abs(exact)+slack > v.values[len(v.values)-1] || most > math.Ldexp(1, 127) || op == Prod && least < math.Ldexp(1, -100) {
				continue // partial results may be infinite, or too small for float32
			}
			tested++
			if diff := math.Abs(got - exact); !(diff <= v.ulp(exact)/2+slack) {
				return fmt.Errorf("%v of %d: element %d is %v, want %v: off by %v units", op, l.size, i, got, exact, diff/v.ulp(exact))
			}
			if i%3 == 2 && op == Sum && got != v.nearest(exact) {
				return fmt.Errorf("%v of %d: element %d is %v, want %v, which is nearest to %v", op, l.size, i, got, v.nearest(exact), exact)
			}
		}
		if tested < n/2 {
			return fmt.Errorf("%v of %d: only %d of %d elements are in the range of the numbers", op, l.size, tested, n)
		}
	}
	return halfMinima(l, v, data)
}

func halfResult[T cohort.Float16 | cohort.BFloat16](l *lab, p placement, mine []T, op Op) ([]T, error) {
	in, out := p.where(l)
	a, err := hold(in, mine, 99, len(mine))
	b, err2 := hold(out, make([]T, len(mine)), 99, len(mine))
	if err := errors.Join(err, err2, Allreduce(l.c, a.t, b.t, op)); err != nil {
		return nil, err
	}
	_, err = a.drop(99)
	got, err2 := b.drop(99)
	return got, errors.Join(err, err2)
}

// halfMinima checks an operation that is not computed as float32.
func halfMinima[T cohort.Float16 | cohort.BFloat16](l *lab, v halfType[T], data [][]T) error {
	got, err := halfResult(l, placements[2], data[l.rank], Min)
	if err != nil {
		return err
	}
	for i, x := range got {
		want := math.Inf(1)
		for r := range data {
			want = min(want, v.bits(data[r][i]))
		}
		if v.bits(x) != want {
			return fmt.Errorf("minimum: element %d is %v, want %v", i, v.bits(x), want)
		}
	}
	return nil
}

// Averages of integers are truncated, also where the number of ranks does not fit in the type; sums
// wrap around before.
func TestDivideTruncatesIntegers(t *testing.T) {
	ints := []int8{-128, -127, -7, -1, 0, 1, 7, 127}
	for _, n := range []int{1, 2, 3, 5, 127, 128, 300, 70000} {
		got := slices.Clone(ints)
		divide(kindOf[int8](), view.Bytes(got), n)
		for i, x := range ints {
			if want := int8(math.Trunc(float64(x) / float64(n))); got[i] != want {
				t.Errorf("%d / %d is %d, want %d", x, n, got[i], want)
			}
		}
		words := []uint64{0, 1, math.MaxUint64, 1 << 63, 12345678901234567890}
		quotients := slices.Clone(words)
		divide(kindOf[uint64](), view.Bytes(quotients), n)
		for i, x := range words {
			if q := quotients[i]; q*uint64(n) > x || x-q*uint64(n) >= uint64(n) {
				t.Errorf("%d / %d is %d", x, n, q)
			}
		}
		z := []complex64{complex(3, -5)}
		divide(kindOf[complex64](), view.Bytes(z), n)
		if want := complex(3/float32(n), -5/float32(n)); z[0] != want {
			t.Errorf("(3-5i) / %d is %v, want %v", n, z[0], want)
		}
	}
	onRanks(t, []int{4}, func(t *testing.T, world *cohort.Comm) error {
		c := must.Get(NewComm(world, nil))
		x, err := Of([]int8{100, -3, 1, 127}, 4)
		err = errors.Join(err, Allreduce(c, x, x, Average))
		// 400 and 508 are -112 and -4 as int8.
		if got, want := x.Data(), []int8{-112 / 4, -12 / 4, 1, -1}; err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("averages of int8: %v, want %v", got, want)
		}
		return errors.Join(err, c.Close())
	})
}
