package main

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// The rows need not divide evenly.
func TestAnyNumberOfRanksIsAllowed(t *testing.T) {
	for _, n := range []int{3, 5} {
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			var clock npb.Clock
			result, err := run(world, classes["S"], &clock)
			if err == nil && !result.Verified() {
				t.Errorf("%d ranks: %+v", n, result.Checks)
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
