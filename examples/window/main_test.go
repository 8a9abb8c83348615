package main

import (
	"bytes"
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

// Only rank 0 prints, and the two primes add up.
func TestOnlyRank0Prints(t *testing.T) {
	out := make([]bytes.Buffer, 3)
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		return report(world, 100, &out[world.Rank()])
	})
	const want = "every even number up to 100 is the sum of two primes; 98 needs the largest: 19 + 79\n"
	if err != nil || out[0].String() != want || out[1].Len()+out[2].Len() > 0 {
		t.Errorf("%v; printed %q, %q and %q, want %q by rank 0 alone", err, &out[0], &out[1], &out[2], want)
	}
}
