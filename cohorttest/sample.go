package cohorttest

import (
	"fmt"
	"slices"
	"sync"
)

// An axis of the matrix is numbered from 0, and a row has one value of each axis.

// covering returns rows in which every pair of values of two axes occurs, given
// how many values each axis has. The rows are always the same. There are about as
// many as the two longest axes have pairs; all combinations would be the product
// of all axes. Each row is the best of a hundred random ones (D. M. Cohen et al., The AETG System, IEEE TSE 23 (1997)).
func covering(axes []int) (rows [][]int) {
	type pair struct{ i, a, j, b int } // value a of axis i with value b of axis j, i <= j
	open := map[pair]bool{}
	for j := range axes {
		for i := range j + 1 {
			for a := range axes[i] {
				for b := range axes[j] {
					if i < j || a == b {
						open[pair{i, a, j, b}] = true
					}
				}
			}
		}
	}
	for rng := seeded("covering", 0); len(open) > 0; {
		var best []int
		var covers []pair
		for range 100 {
			row := filled(len(axes), func(k int) int { return rng.IntN(axes[k]) })
			var more []pair
			for j := range row {
				for i := range j + 1 {
					if p := (pair{i, row[i], j, row[j]}); open[p] {
						more = append(more, p)
					}
				}
			}
			if len(more) > len(covers) {
				best, covers = row, more
			}
		}
		if best != nil {
			rows = append(rows, best)
		}
		for _, p := range covers {
			delete(open, p)
		}
	}
	return rows
}

// slots are the numbers of ranks among which a sample spreads its rows. Other
// numbers share the rows of one of them.
var slots = []int{1, 2, 3, 5}

// coverings keeps the results of covering, by the axes' lengths.
var coverings sync.Map

// sampled returns the rows of the smaller matrix for the job's number of ranks, which
// is one more axis: each row belongs to one of them.
func (r *Rank) sampled(axes ...int) (rows [][]int) {
	axes = append(axes, len(slots))
	all, _ := coverings.LoadOrStore(fmt.Sprint(axes), sync.OnceValue(func() [][]int { return covering(axes) }))
	slot := slices.Index(slots, r.Size)
	if slot < 0 {
		slot = r.Size % len(slots)
	}
	for _, row := range all.(func() [][]int)() {
		if row[len(row)-1] == slot {
			rows = append(rows, row)
		}
	}
	return rows
}

// rows returns all combinations of the axes' values, or with the smaller matrix those sampled.
func (r *Rank) rows(axes ...int) [][]int {
	if r.Short {
		return r.sampled(axes...)
	}
	all := [][]int{nil}
	for _, n := range axes {
		var longer [][]int
		for _, row := range all {
			for v := range n {
				longer = append(longer, append(slices.Clip(row), v))
			}
		}
		all = longer
	}
	return all
}
