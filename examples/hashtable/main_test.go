package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// The first numbers are those in the literature (OEIS A001235), and all are those of a map, for several
// numbers of ranks.
func TestNumbersMatchTheLiterature(t *testing.T) {
	first := []int64{1729, 4104, 13832, 20683, 32832, 39312, 40033, 46683, 64232, 65728}
	const limit = 1_000_000
	ways := make(map[int64]int)
	for a := int64(1); a < 100; a++ {
		for b := int64(1); b <= a; b++ {
			ways[a*a*a+b*b*b]++
		}
	}
	maps.DeleteFunc(ways, func(sum int64, n int) bool { return n < 2 || sum >= limit })
	want := slices.Sorted(maps.Keys(ways))
	for _, ranks := range []int{1, 2, 3, 5} {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			got, err := twice(world, limit)
			if err == nil && (!slices.Equal(got, want) || !slices.Equal(got[:len(first)], first)) {
				t.Errorf("rank %d of %d: %v, want %v", world.Rank(), ranks, got, want)
			}
			return err
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// A full table is an error, and never a wrong count.
func TestFullTableIsAnError(t *testing.T) {
	err := cohort.Run(context.Background(), 2, func(world *cohort.Comm) error {
		table, err := newTable(world, 0)
		if err != nil {
			return err
		}
		for key := int64(1); err == nil && key < 1000; key++ {
			err = table.add(key)
		}
		if !errors.Is(err, errFull) {
			t.Errorf("rank %d: %v", world.Rank(), err)
		}
		return table.close()
	})
	if err != nil {
		t.Error(err)
	}
}
