package exact

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The oracle adds with math/big, in so many bits that nothing is rounded: products have bits from 2^-2148 to 2^2047.

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(4400).SetFloat64(x) }

// nearest rounds a sum that is not that of -0s.
func nearest[T float32 | float64](x *big.Float) T {
	if isSingle[T]() {
		v, _ := x.Float32()
		return T(v)
	}
	v, _ := x.Float64()
	return T(v)
}

func wantSum[T float32 | float64](xs []T) T { return want(xs, nil) }

func wantDot[T float32 | float64](xs, ys []T) T { return want(xs, ys) }

// want returns the sum of the products, or without ys that of xs.
func want[T float32 | float64](xs, ys []T) T {
	sum, special, negative := bigOf(0), 0.0, len(xs) > 0
	for i := range xs {
		x, y := float64(xs[i]), 1.0
		if ys != nil {
			y = float64(ys[i])
		}
		negative = negative && (x == 0 || y == 0) && math.Signbit(x*y)
		if math.IsInf(x, 0) || math.IsInf(y, 0) || x != x || y != y {
			special += x * y // only infinities and NaNs: IEEE 754's own rules
			continue
		}
		if ys == nil {
			sum.Add(sum, new(big.Float).SetFloat64(x))
		} else {
			sum.Add(sum, new(big.Float).SetPrec(106).Mul(new(big.Float).SetFloat64(x), new(big.Float).SetFloat64(y)))
		}
	}
	switch {
	case special != special:
		return T(math.NaN())
	case special != 0:
		return T(special)
	case negative:
		return T(math.Copysign(0, -1))
	case sum.Sign() == 0:
		return 0
	}
	return nearest[T](sum)
}

func bitsOf[T float32 | float64](x T) uint64 {
	if isSingle[T]() {
		return uint64(math.Float32bits(float32(x)))
	}
	return math.Float64bits(float64(x))
}

// same reports whether two numbers have the same bits; NaN must be that of package math.
func same[T float32 | float64](got, want T) bool {
	if want != want {
		want = T(math.NaN())
	}
	return bitsOf(got) == bitsOf(want)
}

// anyNumber returns a finite number with random bits: its exponent is uniform over the whole range, subnormals among them.
func anyNumber[T float32 | float64](rng *rand.Rand) T {
	f := formatOf[T]()
	return number[T](rng.Uint64N(f.inf) | rng.Uint64()&f.sign)
}

// kinds are kinds of data that sums get wrong. Each returns about n numbers.
func kinds[T float32 | float64]() map[string]func(rng *rand.Rand, n int) []T {
	f := formatOf[T]()
	greatest, least := number[T](f.inf-1), number[T](1)
	fill := func(n int, x func(i int) T) []T {
		xs := make([]T, n)
		for i := range xs {
			xs[i] = x(i)
		}
		return xs
	}
	sign := func(rng *rand.Rand) T { return T(1 - 2*rng.IntN(2)) }
	return map[string]func(rng *rand.Rand, n int) []T{
		"all exponents": func(rng *rand.Rand, n int) []T { return fill(n, func(int) T { return anyNumber[T](rng) }) },
		"normal data":   func(rng *rand.Rand, n int) []T { return fill(n, func(int) T { return T(rng.NormFloat64()) }) },
		"positive data": func(rng *rand.Rand, n int) []T { return fill(n, func(int) T { return T(rng.Float64()) }) },
		"subnormals": func(rng *rand.Rand, n int) []T {
			return fill(n, func(int) T { return number[T](rng.Uint64N(3<<f.mantissa) | rng.Uint64()&f.sign) })
		},
		"cancellation": func(rng *rand.Rand, n int) []T {
			xs := fill(n/2, func(int) T { return anyNumber[T](rng) })
			for _, x := range xs {
				xs = append(xs, -x)
			}
			xs = append(xs, anyNumber[T](rng)*T(rng.IntN(2)))
			rng.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
			return xs
		},
		"the largest": func(rng *rand.Rand, n int) []T {
			// The sum is the largest number plus some halves of its last bit, which decide whether it overflows.
			half := T(math.Ldexp(float64(greatest-number[T](f.inf-2)), -1))
			xs := append(fill(n/2, func(int) T { return greatest }), fill(n/2-1, func(int) T { return -greatest })...)
			return append(xs, fill(rng.IntN(3), func(int) T { return half })...)
		},
		"halfway": func(rng *rand.Rand, n int) []T {
			// A number, half of its last bit, and nothing or little.
			x := anyNumber[T](rng)
			for math.Abs(float64(x)) < 0x1p-60 || math.Abs(float64(x)) > 0x1p60 {
				x = anyNumber[T](rng)
			}
			ulp := number[T](bitsOf(x)+1) - x
			xs := []T{x, ulp / 2, least * T(rng.IntN(3)-1), T(rng.IntN(2)) * ulp * sign(rng)}
			return append(xs, fill(n, func(int) T { return 0 })...)
		},
	}
}

// eachKind calls check with data of every kind and several lengths.
func eachKind[T float32 | float64](t *testing.T, lengths []int, check func(t *testing.T, rng *rand.Rand, xs []T)) {
	for name, make := range kinds[T]() {
		t.Run(fmt.Sprintf("%T/%s", T(0), name), func(t *testing.T) {
			for seed, n := range lengths {
				rng := rand.New(rand.NewPCG(uint64(seed), 1))
				check(t, rng, make(rng, n))
			}
		})
	}
}

// The expected results of the oracle itself are known.
func TestOracleKnowsSums(t *testing.T) {
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{nil, 0}, {[]float64{zero}, zero}, {[]float64{zero, 0}, 0}, {[]float64{1, -1}, 0}, {[]float64{0x1p53, 1, 1}, 0x1p53 + 2},
		{[]float64{1, inf}, inf}, {[]float64{inf, -inf}, nan}, {[]float64{math.MaxFloat64, math.MaxFloat64}, inf}, {[]float64{5e-324, 5e-324}, 1e-323},
	} {
		if got := wantSum(c.xs); !same(got, c.want) {
			t.Errorf("%v: %v, want %v", c.xs, got, c.want)
		}
	}
}
