package main

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// The rows need not divide evenly, and the bits do not depend on the number of ranks.
func TestAnyNumberOfRanksGivesTheSameBits(t *testing.T) {
	p := classes["S"]
	p.rows -= 3 // not a whole number of groups
	alone := 0.0
	for _, n := range []int{1, 3, 5, 8} {
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			var clock npb.Clock
			result, err := run(world, p, &clock)
			if err != nil || world.Rank() > 0 {
				return err
			}
			zeta := result.Checks[0].Value
			if n == 1 {
				alone = zeta
			}
			if zeta != alone {
				t.Errorf("%d ranks: zeta is %v, and %v on one", n, zeta, alone)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
