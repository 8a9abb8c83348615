package sched

import (
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/internal/agree"
)

// A leg's message reports those ranks of which its sender knows by then, for every rank of jobs of every
// size. After the last leg all ranks know of all.
func TestLegsPassOnWhatTheirSenderHasSeen(t *testing.T) {
	for size := 1; size <= 70; size++ {
		runners := make([]*Runner, size)
		known := make([]agree.Set, size)
		for rank := range runners {
			runners[rank] = &Runner{rank: rank, size: size, legs: flatLegs(rank, size)}
			known[rank] = agree.NewSet(size)
			known[rank].Add(rank)
		}
		for i := range runners[0].legs {
			before := make([]agree.Set, size)
			for rank := range before {
				before[rank] = slices.Clone(known[rank])
			}
			for rank, r := range runners {
				l := &r.legs[i]
				if to := runners[l.from].legs[i].to; to != rank {
					t.Fatalf("%d ranks, leg %d: rank %d waits for %d, which sends to %d", size, i, rank, l.from, to)
				}
				said := agree.NewSet(size)
				r.addArrivals(l, said)
				if !slices.Equal(said, before[l.from]) {
					t.Fatalf("%d ranks, leg %d: what rank %d hears from %d tells of %b, and that one knows of %b", size, i, rank, l.from, said, before[l.from])
				}
				known[rank].AddAll(said)
			}
		}
		for rank, s := range known {
			for other := range size {
				if !s.Has(other) {
					t.Fatalf("%d ranks: after the last leg rank %d does not know of %d", size, rank, other)
				}
			}
		}
	}
}
