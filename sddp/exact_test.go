package sddp

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// someFloats returns finite numbers of all sizes, subnormal ones and the largest included.
func someFloats(rng *rand.Rand, n int) []float64 {
	out := []float64{0, 1, -1, 5e-324, -5e-324, math.MaxFloat64, -math.MaxFloat64, 0x1p-1022, 0x1.fffffffffffffp-1023}
	for len(out) < n {
		x := math.Float64frombits(rng.Uint64())
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			out = append(out, x)
		}
	}
	return out
}

// A sum equals that of unlimited precision, in any order and however it is shared out.
func TestExactSumDoesNotRound(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		xs := someFloats(rng, 300)
		want := new(big.Float).SetPrec(4000)
		for _, x := range xs {
			want.Add(want, new(big.Float).SetFloat64(x))
		}
		wanted := new(big.Float).SetPrec(256).Set(want)
		rng.Shuffle(len(xs), func(i, j int) { xs[i], xs[j] = xs[j], xs[i] })
		var parts [3]exactSum
		for i, x := range xs {
			parts[i%3].add(x)
		}
		var sum exactSum
		for _, p := range parts {
			for i := range p {
				sum[i] += p[i]
			}
		}
		if got := sum.value(); got.Cmp(wanted) != 0 {
			t.Fatalf("sum is %v, want %v", got, wanted)
		}
	}
}

// The estimate of numbers whose mean and deviation are known in closed form: 1 to n, far from zero.
func TestEstimateMatchesDefinition(t *testing.T) {
	const n, offset = 99, 1e9
	var tally tally
	for i := range n {
		tally.add(offset + float64(i+1))
	}
	e := tally.estimate()
	std := math.Sqrt(n * (n + 1) / 12.0)
	if e.Samples != n || e.Mean != offset+(n+1)/2.0 || math.Abs(e.Std-std) > 1e-12*std {
		t.Errorf("got %+v, want mean %v and deviation %v", e, offset+(n+1)/2.0, std)
	}
	if want := student975(n-1) * std / math.Sqrt(n); math.Abs(e.CI95-want) > 1e-12*want {
		t.Errorf("half width %v, want %v", e.CI95, want)
	}
}

func TestEstimateOfOneValueHasNoInterval(t *testing.T) {
	var one tally
	one.add(7)
	if e := one.estimate(); e.Mean != 7 || !math.IsInf(e.CI95, 1) || e.Std != 0 {
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
