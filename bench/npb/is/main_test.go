package main

import (
	"context"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// The ranks' keys together are those that one rank makes, and each key gets its rank, on any number of ranks: more ranks
// than there are keys in most buckets too.
func TestKeysAndRanksOnAnyNumberOfRanks(t *testing.T) {
	p := classes["S"]
	var whole []int32
	for _, n := range []int{1, 3, 5, 17} {
		keys, smaller := make([]int32, 1<<p.keys), make([]int32, 1<<p.bits)
		err := cohort.Run(context.Background(), n, func(world *cohort.Comm) error {
			var clock npb.Clock
			s := newSorter(world, p, &clock)
			copy(keys[s.first:], s.keys) // the ranks' parts do not overlap
			err := s.iterate(1)
			if err == nil {
				copy(smaller[s.begin[world.Rank()]<<s.shift:], s.smaller)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", n, err)
		}
		if whole == nil {
			whole = slices.Clone(keys)
		}
		if !slices.Equal(keys, whole) {
			t.Fatalf("%d ranks make other keys than one", n)
		}
		keys[1], keys[1+iterations] = 1, 1<<p.bits-1
		slices.Sort(keys)
		for key, got := range smaller {
			if want, _ := slices.BinarySearch(keys, int32(key)); int(got) != want {
				t.Fatalf("%d ranks: key %d has rank %d, want %d", n, key, got, want)
			}
		}
	}
}

// The kernel verifies itself where the keys do not divide evenly.
func TestAnyNumberOfRanksIsAllowed(t *testing.T) {
	err := cohort.Run(context.Background(), 7, func(world *cohort.Comm) error {
		var clock npb.Clock
		result, err := run(world, classes["S"], &clock)
		if err == nil && !result.Verified() {
			t.Errorf("%+v", result.Checks)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
