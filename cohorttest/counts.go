package cohorttest

import (
	"slices"

	"github.com/cohort-hpc/cohort"
)

// The collectives that exchange the counts and allocate what they receive.

func countScenarios() []scenario {
	return []scenario{
		{name: "counts/lengths", body: func(r *Rank) {
			for _, m := range lengths {
				m = min(m, max(m/r.Size, long/4))
				unknownCounts(r, packeds, m)
				unknownCounts(r, uint8s, m)
				unknownCounts(r, triples, m)
			}
		}},
	}
}

// unknownCounts calls each of the collectives. Rank i contributes i mod 4 times m/3 elements, and sends
// rank j (2i+j) mod 4 times m/3 of them in AlltoallvAppend.
func unknownCounts[T comparable](r *Rank, k kind[T], m int) {
	seed := m + 1
	block := func(rank, n int) []T { // the first n elements of what a rank contributes
		s := filled(n, func(i int) T { return k.elem(value(seed, rank, i)) })
		return s
	}
	same := func(what string, got, want []T, counts, wantCounts []int) {
		if !slices.Equal(got, want) || !slices.Equal(counts, wantCounts) {
			r.Errorf("%s of %d %s: %d elements with counts %v, want %d with %v, or the elements differ",
				what, m, k.name, len(got), counts, len(want), wantCounts)
		}
	}

	length := func(rank int) int { return rank % 4 * m / 3 }
	var all []T
	for i := range r.Size {
		all = append(all, block(i, length(i))...)
	}
	mine := block(r.Rank, length(r.Rank))
	got, counts := must2(cohort.AllgathervAppend(r.Comm, nil, mine))
	same("AllgathervAppend", got, all, counts, each(r.Size, length))
	for _, root := range []int{0, r.Size / 2, r.Size - 1} {
		if got, counts := must2(cohort.GathervAppend(r.Comm, nil, mine, root)); r.Rank == root {
			same("GathervAppend", got, all, counts, each(r.Size, length))
		} else if got != nil || counts != nil {
			r.Errorf("GathervAppend returns %d elements and counts %v on a rank that is not the root", len(got), counts)
		}
	}

	count := func(from, to int) int { return (2*from + to) % 4 * m / 3 }
	sends := func(from int) (blocks [][]T) { // what a rank sends, divided
		n := 0
		for to := range r.Size {
			n += count(from, to)
		}
		whole := block(from, n)
		for to := range r.Size {
			blocks = append(blocks, whole[:count(from, to)])
			whole = whole[count(from, to):]
		}
		return blocks
	}
	var want []T
	for from := range r.Size {
		want = append(want, sends(from)[r.Rank]...)
	}
	got, counts = must2(cohort.AlltoallvAppend(r.Comm, nil, slices.Concat(sends(r.Rank)...), each(r.Size, func(to int) int { return count(r.Rank, to) })))
	same("AlltoallvAppend", got, want, counts, each(r.Size, func(from int) int { return count(from, r.Rank) }))
}
