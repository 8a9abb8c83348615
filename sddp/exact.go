package sddp

import (
	"math"
	"math/big"
	"math/bits"
)

// exactLimbs is enough for every finite float64: 2098 bits from 2^-1074 up, in limbs of 32.
const exactLimbs = 67

// exactSum is a sum of float64 without rounding: a fixed-point number of 67 limbs, where limb i counts
// units of 2^(32i-1074) (the small superaccumulator of Neal, 2015, without its carries). Adding two
// sums limb by limb is exact, so the order does not matter: a sum reduced over ranks is the same for
// any number of ranks.
//
// Invariant: a limb holds the sum of at most 2^31 terms below 2^32, so none overflows.
type exactSum [exactLimbs]int64

// add adds a finite number.
func (s *exactSum) add(x float64) {
	b := math.Float64bits(x)
	exponent, m := int(b>>52&0x7ff), b&(1<<52-1)
	if exponent == 0 {
		exponent = 1 // subnormal
	} else {
		m |= 1 << 52
	}
	at, shift := (exponent-1)/32, (exponent-1)%32
	hi, lo := bits.Mul64(m, 1<<shift)
	parts := [3]int64{int64(lo & 0xffffffff), int64(lo >> 32), int64(hi)}
	for i, p := range parts {
		if p == 0 {
			continue // this also keeps the index in range: no finite number extends beyond the last limb
		}
		if x < 0 {
			p = -p
		}
		s[at+i] += p
	}
}

// value returns the sum with 256 bits of precision, enough that its rounding does not matter.
func (s *exactSum) value() *big.Float {
	total, limb := new(big.Int), new(big.Int)
	for i := exactLimbs - 1; i >= 0; i-- {
		total.Lsh(total, 32)
		total.Add(total, limb.SetInt64(s[i]))
	}
	f := new(big.Float).SetPrec(256).SetInt(total)
	return f.SetMantExp(f, -1074)
}

// tally holds exact data for a mean and a standard deviation: the number of values, their sum, and the
// sum of their squares. It is a flat list of integers, so that an Allreduce can add the tallies of all
// ranks.
type tally [1 + 2*exactLimbs]int64

// add adds a finite value whose square is finite too.
func (t *tally) add(x float64) {
	t[0]++
	(*exactSum)(t[1:]).add(x)
	square := x * x
	squares := (*exactSum)(t[1+exactLimbs:])
	squares.add(square)
	squares.add(math.FMA(x, x, -square)) // the rounding error of the square
}

// Estimate is the mean of a sample with its confidence interval.
type Estimate struct {
	Samples int
	Mean    float64
	Std     float64 // standard deviation of one value; 0 for fewer than two
	CI95    float64 // half the width of the 95 % confidence interval of the mean; infinite for fewer than two
}

// Gap returns the distance from a lower bound of the mean to the upper end of its interval, relative to the
// bound and at least 0. It is infinite if there is no interval.
//
// Not collective.
func (e Estimate) Gap(lower float64) float64 {
	above := math.Max(e.Mean+e.CI95-lower, 0)
	if above == 0 {
		return 0
	}
	return above / math.Max(math.Abs(lower), 1e-300)
}

// estimate returns the mean and its interval, by Student's distribution.
func (t *tally) estimate() Estimate {
	n := t[0]
	e := Estimate{Samples: int(n), CI95: math.Inf(1)}
	if n == 0 {
		return e
	}
	sum, count := (*exactSum)(t[1:]).value(), new(big.Float).SetInt64(n)
	mean := new(big.Float).Quo(sum, count)
	e.Mean, _ = mean.Float64()
	if n < 2 {
		return e
	}
	off := (*exactSum)(t[1+exactLimbs:]).value()
	off.Sub(off, mean.Mul(mean, sum))
	v, _ := off.Quo(off, new(big.Float).SetInt64(n-1)).Float64()
	e.Std = math.Sqrt(math.Max(v, 0))
	e.CI95 = student975(int(n-1)) * e.Std / math.Sqrt(float64(n))
	return e
}

// students are the 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom.
var students = [...]float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// student975 returns the 97.5 % quantile of Student's distribution.
func student975(freedom int) float64 {
	if freedom <= len(students) {
		return students[freedom-1]
	}
	return studentQuantile(1.959963984540054, freedom)
}

// studentQuantile returns the quantile of Student's distribution for more than 30 degrees of freedom, given
// that of the normal distribution: the Cornish-Fisher expansion (Abramowitz and Stegun, 26.7.5).
func studentQuantile(z float64, freedom int) float64 {
	z3 := z * z * z
	z5 := z3 * z * z
	f := float64(freedom)
	return z + (z3+z)/(4*f) + (5*z5+16*z3+3*z)/(96*f*f)
}
