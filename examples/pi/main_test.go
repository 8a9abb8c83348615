package main

import (
	"context"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The test compares the integral with pi, and its error with that of the midpoint rule: h²/24 times
// the difference of the derivative at the ends, which is 2. The bits are the same on all ranks of
// jobs of several sizes.
func TestPiHasMidpointRuleError(t *testing.T) {
	const h = 1.0 / intervals
	var first uint64
	for n := 1; n <= 8; n++ {
		bits := make([]uint64, n)
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			pi, err := integrate(world)
			bits[world.Rank()] = math.Float64bits(pi)
			return err
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		if n == 1 {
			first = bits[0]
		}
		for rank, b := range bits {
			if b != first {
				t.Errorf("rank %d of %d: %v, a single rank got %v", rank, n, math.Float64frombits(b), math.Float64frombits(first))
			}
		}
	}
	// A thousand sums of positive terms below 4: rounding stays far below 1e-13.
	pi := math.Float64frombits(first)
	if off := pi - math.Pi - h*h/12; math.Abs(off) > 1e-13 {
		t.Errorf("got %v, which is %v from what the midpoint rule gives", pi, off)
	}
}
