package sddp

import (
	"math"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/exact"
)

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

// estimateOf returns the mean of numbers and its interval, by Student's distribution.
func estimateOf(xs []float64) Estimate {
	mean, squares := total(xs)/float64(len(xs)), 0.0
	for _, x := range xs {
		squares += (x - mean) * (x - mean)
	}
	return newEstimate(len(xs), mean, squares)
}

// estimateAll is estimateOf for n numbers, of which every rank has some. The sums are exact, so the result does not
// depend on which rank has which numbers.
//
// Collective: all ranks call it.
func estimateAll(c *cohort.Comm, xs []float64, n int) (Estimate, error) {
	sum, err := exact.Sum(c, xs)
	if err != nil {
		return Estimate{}, err
	}
	mean, off := sum/float64(n), make([]float64, len(xs))
	for i, x := range xs {
		off[i] = x - mean
	}
	squares, err := exact.Dot(c, off, off)
	return newEstimate(n, mean, squares), err
}

// newEstimate returns the estimate of n numbers with a mean and a sum of squared deviations from it.
func newEstimate(n int, mean, squares float64) Estimate {
	e := Estimate{Samples: n, Mean: mean, CI95: math.Inf(1)}
	if n > 1 {
		e.Std = math.Sqrt(squares / float64(n-1))
		e.CI95 = student975(n-1) * e.Std / math.Sqrt(float64(n))
	}
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
