package sddp

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The estimate of numbers whose mean and deviation are known in closed form: 1 to n, far from zero.
func TestEstimateMatchesDefinition(t *testing.T) {
	const n, offset = 99, 1e9
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = offset + float64(i+1)
	}
	e := estimateOf(xs)
	std := math.Sqrt(n * (n + 1) / 12.0)
	if e.Samples != n || e.Mean != offset+(n+1)/2.0 || math.Abs(e.Std-std) > 1e-12*std {
		t.Errorf("got %+v, want mean %v and deviation %v", e, offset+(n+1)/2.0, std)
	}
	if want := student975(n-1) * std / math.Sqrt(n); math.Abs(e.CI95-want) > 1e-12*want {
		t.Errorf("half width %v, want %v", e.CI95, want)
	}
}

// The estimate has the same bits however many ranks have the numbers, and whichever ranks do.
func TestEstimateDoesNotDependOnRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	xs := make([]float64, 101)
	for i := range xs {
		xs[i] = 1e6 + 1e3*rng.NormFloat64()
	}
	want := estimateOf(xs)
	var first Estimate
	for n := 1; n <= 4; n++ {
		err := cohort.Run(t.Context(), n, func(c *cohort.Comm) error {
			var mine []float64
			for i := c.Rank(); i < len(xs); i += n {
				mine = append(mine, xs[i])
			}
			e, err := estimateAll(c, mine, len(xs))
			if c.Rank() > 0 || err != nil {
				return err
			}
			if n == 1 {
				first = e
			}
			if e != first || math.Abs(e.Mean-want.Mean) > 1e-15*want.Mean || math.Abs(e.Std-want.Std) > 1e-13*want.Std {
				t.Errorf("%d ranks: got %+v, on one rank %+v, want about %+v", n, e, first, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestEstimateOfOneValueHasNoInterval(t *testing.T) {
	if e := estimateOf([]float64{7}); e.Mean != 7 || !math.IsInf(e.CI95, 1) || e.Std != 0 {
		t.Errorf("got %+v, want mean 7 with an interval that is everything", e)
	}
}

// The quantile leaves 2.5 % above it, by numerical integration of Student's density.
func TestStudentQuantilesMatchTables(t *testing.T) {
	for _, f := range []int{1, 2, 3, 5, 7, 10, 30, 31, 50, 199, 1000} {
		q, nu := student975(f), float64(f)
		a, _ := math.Lgamma((nu + 1) / 2)
		b, _ := math.Lgamma(nu / 2)
		scale := math.Exp(a-b) / math.Sqrt(nu*math.Pi)
		density := func(x float64) float64 { return scale * math.Pow(1+x*x/nu, -(nu+1)/2) }
		const steps = 20000 // Simpson's rule from 0 to q
		sum, h := density(0)+density(q), q/steps
		for i := 1; i < steps; i++ {
			sum += density(float64(i)*h) * float64(2+2*(i%2))
		}
		if p := 0.5 + sum*h/3; math.Abs(p-0.975) > 5e-5 {
			t.Errorf("%d degrees of freedom: %.5f is below %v, want 0.975", f, p, q)
		}
	}
}
