package main

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The test compares the numbers that need a larger prime than all smaller ones with the lists in
// the literature (OEIS A025018 and A025019), for several numbers of ranks.
func TestGoldbachMatchesTheLiterature(t *testing.T) {
	records := []struct{ even, prime int64 }{
		{4, 2}, {6, 3}, {12, 5}, {30, 7}, {98, 19}, {220, 23}, {308, 31}, {556, 47}, {992, 73}, {2642, 103},
		{5372, 139}, {7426, 173}, {43532, 211},
	}
	for _, n := range []int{1, 2, 3, 5, 8} {
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			for i, want := range records {
				limits := []int64{want.even, want.even + 1}
				if i+1 < len(records) {
					limits = append(limits, records[i+1].even-1)
				}
				for _, limit := range limits {
					got, err := goldbach(world, int(limit))
					if err != nil {
						return err
					}
					if got != (cohort.Loc[int64]{Val: want.prime, Idx: want.even}) {
						t.Errorf("rank %d of %d, up to %d: %d needs %d, want %d and %d",
							world.Rank(), n, limit, got.Idx, got.Val, want.even, want.prime)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", n, err)
		}
	}
}
