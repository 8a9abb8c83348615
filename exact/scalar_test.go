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

// ranks runs body on ranks of this process.
func ranks(t testing.TB, n int, body func(world *cohort.Comm) error) {
	t.Helper()
	if err := cohort.Run(t.Context(), n, must.Return(body)); err != nil {
		t.Error(err)
	}
}

// cut returns rank r's part of xs, where the parts differ in length and some are empty.
func cut[T any](xs []T, seed uint64, r, ranks int) []T {
	rng := rand.New(rand.NewPCG(seed, 2))
	from := 0
	for i := range ranks {
		to := from + rng.IntN(len(xs)-from+1)
		if i == ranks-1 {
			to = len(xs)
		}
		if i == r {
			return xs[from:to]
		}
		from = to
	}
	return nil
}

var someLengths = []int{2, 2, 2, 2, 3, 3, 4, 5, 10, 100, 1000, 1023, 1024, 1025, 4097}

func TestSumIsTheNearestNumber(t *testing.T) {
	eachKind(t, someLengths, sumIsNearest[float32])
	eachKind(t, someLengths, sumIsNearest[float64])
}

func sumIsNearest[T float32 | float64](t *testing.T, rng *rand.Rand, xs []T) {
	want := wantSum(xs)
	for _, n := range []int{1, 2, 3} {
		rng.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
		seed := rng.Uint64()
		ranks(t, n, func(world *cohort.Comm) error {
			got, err := Sum(world, cut(xs, seed, world.Rank(), n))
			if err == nil && !same(got, want) {
				err = fmt.Errorf("%d numbers on %d ranks: got %v, want %v", len(xs), n, got, want)
			}
			return err
		})
	}
}

func TestDotIsTheNearestNumber(t *testing.T) {
	eachKind(t, someLengths, dotIsNearest[float32])
	eachKind(t, someLengths, dotIsNearest[float64])
}

func dotIsNearest[T float32 | float64](t *testing.T, rng *rand.Rand, xs []T) {
	ys := make([]T, len(xs))
	for i := range ys {
		ys[i] = anyNumber[T](rng)
	}
	if len(xs) > 1 && rng.IntN(2) == 0 { // products that cancel
		xs[0], ys[0] = -xs[1], ys[1]
	}
	want := wantDot(xs, ys)
	for _, n := range []int{1, 3} {
		seed := rng.Uint64()
		ranks(t, n, func(world *cohort.Comm) error {
			got, err := Dot(world, cut(xs, seed, world.Rank(), n), cut(ys, seed, world.Rank(), n))
			if err == nil && !same(got, want) {
				err = fmt.Errorf("%d products on %d ranks: got %v, want %v", len(xs), n, got, want)
			}
			return err
		})
	}
}

// specialSums are sums by the rules of IEEE 754.
func specialSums[T float32 | float64]() []struct {
	xs   []T
	want T
} {
	inf, nan, zero := T(math.Inf(1)), T(math.NaN()), T(math.Copysign(0, -1))
	f := formatOf[T]()
	greatest, least := number[T](f.inf-1), number[T](1)
	return []struct {
		xs   []T
		want T
	}{
		{nil, 0}, {[]T{0}, 0}, {[]T{zero}, zero}, {[]T{zero, zero, zero}, zero}, {[]T{zero, 0, zero}, 0}, {[]T{zero, 1, -1}, 0},
		{[]T{zero, least}, least}, {[]T{zero, -least}, -least}, {[]T{3, zero, -3}, 0}, {[]T{inf, 1}, inf}, {[]T{-inf, greatest, greatest}, -inf},
		{[]T{inf, inf}, inf}, {[]T{-inf, zero, -inf}, -inf}, {[]T{inf, -inf}, nan}, {[]T{nan, 1}, nan}, {[]T{nan, inf}, nan}, {[]T{nan, -inf, zero}, nan},
		{[]T{-nan, -nan}, nan}, {[]T{greatest, greatest}, inf}, {[]T{-greatest, -greatest, 1}, -inf}, {[]T{greatest, greatest, -greatest}, greatest},
		{[]T{greatest, least}, greatest}, {[]T{least, least, -least}, least}, {[]T{-least, -least, -least}, -3 * least},
	}
}

func TestSpecialValues(t *testing.T) {
	specialValues[float32](t)
	specialValues[float64](t)
}

func specialValues[T float32 | float64](t *testing.T) {
	for _, c := range specialSums[T]() {
		for _, n := range []int{1, 2, 3} {
			ranks(t, n, func(world *cohort.Comm) error {
				mine := cut(c.xs, 7, world.Rank(), n)
				got, err := Sum(world, mine)
				if v := localSum(c.xs); !same(v, c.want) {
					err = fmt.Errorf("sum of %v: got %v, want %v", c.xs, v, c.want)
				}
				if err == nil && !same(got, c.want) {
					err = fmt.Errorf("Sum of %v on %d ranks: got %v, want %v", c.xs, n, got, c.want)
				}
				return err
			})
		}
	}
	inf, nan, zero := T(math.Inf(1)), T(math.NaN()), T(math.Copysign(0, -1))
	f := formatOf[T]()
	greatest, least := number[T](f.inf-1), number[T](1)
	for _, c := range []struct {
		xs, ys []T
		want   T
	}{
		{nil, nil, 0}, {[]T{0}, []T{-1}, zero}, {[]T{zero, -2}, []T{5, 0}, zero}, {[]T{0, 0}, []T{-1, 1}, 0}, {[]T{zero}, []T{zero}, 0},
		{[]T{inf}, []T{0}, nan}, {[]T{0, 1}, []T{nan, 1}, nan}, {[]T{inf, inf}, []T{2, -3}, nan}, {[]T{inf, 1}, []T{-2, 1}, -inf}, {[]T{-inf}, []T{least}, -inf},
		{[]T{greatest, greatest}, []T{greatest, -greatest}, 0}, {[]T{greatest}, []T{2}, inf}, {[]T{greatest}, []T{-greatest}, -inf},
		{[]T{least}, []T{least}, 0}, {[]T{least}, []T{-least}, zero}, {[]T{least, least}, []T{0.5, 0.5}, least}, {[]T{least, 1}, []T{least, least}, least},
		{[]T{greatest, greatest, 3}, []T{greatest, -greatest, least}, 3 * least},
	} {
		ranks(t, 2, func(world *cohort.Comm) error {
			got, err := Dot(world, cut(c.xs, 7, world.Rank(), 2), cut(c.ys, 7, world.Rank(), 2))
			if err == nil && !same(got, c.want) {
				err = fmt.Errorf("Dot of %v and %v: got %v, want %v", c.xs, c.ys, got, c.want)
			}
			return err
		})
	}
}

// The rank with the wrong length gets ErrCount, the others ErrMismatch, and the communicator stays usable.
func TestWrongLengthOfDotIsKnownToAllRanks(t *testing.T) {
	ranks(t, 3, func(world *cohort.Comm) error {
		for _, wrong := range []func(r int) bool{func(r int) bool { return r == 1 }, func(int) bool { return true }} {
			x, y, want := make([]float64, 2), make([]float64, 2), cohort.ErrMismatch
			if wrong(world.Rank()) {
				y, want = y[:1], cohort.ErrCount
			}
			_, err := Dot(world, x, y)
			var e *cohort.OpError
			if !errors.Is(err, want) || !errors.As(err, &e) || e.Op != "exact.dot" || e.Rank != world.Rank() {
				return fmt.Errorf("rank %d: %v, want %v", world.Rank(), err, want)
			}
		}
		got, err := Dot(world, []float32{1}, []float32{2})
		if err == nil && got != 6 {
			err = fmt.Errorf("got %v, want 6", got)
		}
		return err
	})
}

func TestDifferentCallsAreMismatches(t *testing.T) {
	one, two := []float32{1}, []float64{1}
	for name, call := range map[string][2]func(c *cohort.Comm) error{
		"types of Sum": {func(c *cohort.Comm) error { return second(Sum(c, one)) }, func(c *cohort.Comm) error { return second(Sum(c, two)) }},
		"types of Dot": {func(c *cohort.Comm) error { return second(Dot(c, one, one)) }, func(c *cohort.Comm) error { return second(Dot(c, two, two)) }},
		"Sum and Dot":  {func(c *cohort.Comm) error { return second(Sum(c, two)) }, func(c *cohort.Comm) error { return second(Dot(c, two, two)) }},
		"types of Allreduce": {func(c *cohort.Comm) error { return New[float32](1).Allreduce(c, one) },
			func(c *cohort.Comm) error { return New[float64](1).Allreduce(c, []float64{1}) }},
	} {
		_ = cohort.Run(t.Context(), 2, func(world *cohort.Comm) error {
			if err := call[world.Rank()](world); !errors.Is(err, cohort.ErrMismatch) {
				t.Errorf("%s: %v, want ErrMismatch", name, err)
			}
			return nil
		})
	}
	if _, err := Sum(nil, one); !errors.Is(err, cohort.ErrComm) {
		t.Errorf("without a communicator: %v, want ErrComm", err)
	}
}

func second[T any](_ T, err error) error { return err }

// FuzzSum adds any numbers, and their products.
func FuzzSum(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\xf0\x7f\x01\x00\x00\x00\x00\x00\xf0\xff"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xef\x7f\x00\x00\x00\x00\x00\x00\x90\x7c"))
	f.Add([]byte("\x01\x00\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00\x00\x00\x00\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var xs []float64
		var singles []float32
		for ; len(b) >= 8; b = b[8:] {
			u := uint64(0)
			for i := range 8 {
				u |= uint64(b[i]) << (8 * i)
			}
			xs = append(xs, math.Float64frombits(u))
			singles = append(singles, math.Float32frombits(uint32(u)), math.Float32frombits(uint32(u>>32)))
		}
		if got, want := localSum(xs), wantSum(xs); !same(got, want) {
			t.Errorf("Sum(%v) = %v, want %v", xs, got, want)
		}
		if got, want := localSum(singles), wantSum(singles); !same(got, want) {
			t.Errorf("Sum(%v) = %v, want %v", singles, got, want)
		}
		half := len(xs) / 2
		u := new(total)
		u[values] = int64(half)
		addProducts(u, xs[:half], xs[half:])
		if got, want := result[float64](u, dotLimbs, dotExp), wantDot(xs[:half], xs[half:2*half]); !same(got, want) {
			t.Errorf("Dot(%v, %v) = %v, want %v", xs[:half], xs[half:2*half], got, want)
		}
	})
}

// localSum is Sum without a communicator, for at most burst numbers. Both ways to add give the same.
func localSum[T float32 | float64](xs []T) T {
	var sums [2]T
	for i, add := range []func(*total, []T){add[T], addMany[T]} {
		u := new(total)
		u[values] = int64(len(xs))
		add(u, xs)
		sums[i] = result[T](u, sumLimbs, sumExp)
	}
	if !same(sums[0], sums[1]) {
		panic(fmt.Sprint("numbers one by one give ", sums[0], ", by the table ", sums[1]))
	}
	return sums[0]
}

// Tables of numbers are full: the sums of mantissas have as many bits as they can have.
func TestTablesDoNotOverflow(t *testing.T) {
	ranks(t, 1, func(world *cohort.Comm) error {
		for e := 0; e <= 32; e += 8 {
			x := math.Ldexp(math.MaxFloat64, -e-100)
			xs := make([]float64, 2*tableTo)
			for i := range xs {
				xs[i] = x
			}
			if got, err := Sum(world, xs); err != nil || got != x*2*tableTo {
				return fmt.Errorf("%d times %v: got %v, %v", len(xs), x, got, err)
			}
		}
		return nil
	})
}
