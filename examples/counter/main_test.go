package main

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The test compares the number of primes with the literature (OEIS A006880), for several numbers of ranks.
func TestPrimesMatchTheLiterature(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 5} {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			for _, c := range []struct{ limit, want int }{{1, 0}, {10, 4}, {100, 25}, {1000, 168}, {10_000, 1229}, {100_000, 9592}} {
				got, err := count(world, c.limit)
				if err != nil {
					return err
				}
				if got != c.want {
					t.Errorf("rank %d of %d: %d primes below %d, want %d", world.Rank(), ranks, got, c.limit, c.want)
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}
