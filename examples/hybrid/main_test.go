package main

import (
	"context"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
)

// The test compares the numbers that take more steps than all smaller ones with the lists in the
// literature (OEIS A006877 and A006878), for several numbers of ranks and threads.
func TestCollatzMatchesTheLiterature(t *testing.T) {
	records := []struct{ n, steps int64 }{
		{1, 0}, {2, 1}, {3, 7}, {6, 8}, {7, 16}, {9, 19}, {18, 20}, {25, 23}, {27, 111}, {54, 112},
		{73, 115}, {97, 118}, {129, 121}, {171, 124}, {231, 127}, {313, 130}, {327, 143}, {649, 144}, {703, 170}, {871, 178},
		{1161, 181}, {2223, 182}, {2463, 208}, {2919, 216}, {3711, 237}, {6171, 261}, {10971, 267},
		{13255, 275}, {17647, 278}, {23529, 281}, {26623, 307}, {34239, 310}, {35655, 323}, {52527, 339},
	}
	for _, split := range []struct{ ranks, threads int }{{1, 1}, {1, 3}, {2, 2}, {3, 1}, {5, 2}} {
		err := cohort.Run(context.Background(), split.ranks, func(world *cohort.Comm) error {
			env, err := hybrid.Join(world, &hybrid.Config{Threads: split.threads})
			if err != nil {
				return err
			}
			defer env.Close()
			for i, want := range records {
				limits := []int64{want.n + 1}
				if i+1 < len(records) {
					limits = append(limits, records[i+1].n)
				}
				for _, limit := range limits {
					got, err := collatz(env, int(limit))
					if err != nil {
						return err
					}
					if got != (cohort.Loc[int64]{Val: want.steps, Idx: want.n}) {
						t.Errorf("%d ranks of %d threads, below %d: %d with %d steps, want %d with %d",
							split.ranks, split.threads, limit, got.Idx, got.Val, want.n, want.steps)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", split, err)
		}
	}
}
