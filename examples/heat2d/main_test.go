package main

import (
	"context"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The test compares every cell with the exact solution of the discrete equation, and the bits of
// the cells between numbers of ranks. The starting temperatures are an eigenvector of the step, so
// that k steps multiply them by growth^k.
func TestHeatMatchesExactSolution(t *testing.T) {
	sin2 := func(x float64) float64 { return math.Sin(x) * math.Sin(x) }
	growth := 1 - 4*ratio*(sin2(math.Pi/2/(cells+1))+sin2(math.Pi/(cells+1)))
	start := func(i, j int) float64 {
		return math.Sin(math.Pi*float64(i+1)/(cells+1)) * math.Sin(2*math.Pi*float64(j+1)/(cells+1))
	}
	hottest := 0.0
	for i := range cells {
		for j := range cells {
			hottest = max(hottest, start(i, j))
		}
	}
	// Step k changes the hottest cell by hottest (1-growth) growth^(k-1).
	wantSteps := 1 + int(math.Ceil(math.Log(tolerance/(hottest*(1-growth)))/math.Log(growth)))
	decay := math.Pow(growth, float64(wantSteps))

	var alone [cells][cells]float64
	for _, n := range []int{1, 2, 3, 4, 6} {
		var whole [cells][cells]float64
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			p, steps, residual, err := simulate(world)
			if err != nil {
				return err
			}
			if steps != wantSteps || residual > tolerance {
				t.Errorf("%d ranks: residual %g after %d steps, want at most %g after %d", n, residual, steps, tolerance, wantSteps)
			}
			for i := range p.n[0] { // the ranks' parts do not overlap
				copy(whole[p.first[0]+i][p.first[1]:], p.now[(i+1)*p.stride[0]+1:][:p.n[1]])
			}
			return nil
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		if n == 1 {
			alone = whole
		}
		if whole != alone {
			t.Errorf("%d ranks and one rank give different bits", n)
		}
	}
	for i := range cells {
		for j := range cells {
			if want := start(i, j) * decay; math.Abs(alone[i][j]-want) > 1e-12 {
				t.Fatalf("cell %d, %d is %v, the exact solution is %v", i, j, alone[i][j], want)
			}
		}
	}
}
