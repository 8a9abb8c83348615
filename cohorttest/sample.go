package cohorttest

import (
	"slices"
	"sync"
)

// An axis of the matrix is numbered from 0, and a row has one value of each axis.

// covering returns rows in which every pair of values of two axes occurs, given
// how many values each axis has. The rows are always the same. There are about as
// many as the two longest axes have pairs; all combinations would be the product
// of all axes. (D. M. Cohen et al., The AETG System, IEEE TSE 23 (1997), whose
// greedy choice this is, without the random trials.)
func covering(axes []int) (rows [][]int) {
	type pair struct{ i, a, j, b int } // value a of axis i with value b of axis j, i < j
	open := map[pair]bool{}
	var order []pair
	for j := range axes {
		for i := range j {
			for a := range axes[i] {
				for b := range axes[j] {
					p := pair{i, a, j, b}
					order = append(order, p)
					open[p] = true
				}
			}
		}
	}
	if len(order) == 0 { // a single axis
		for a := range axes[0] {
			rows = append(rows, []int{a})
		}
		return rows
	}
	for _, first := range order {
		if !open[first] {
			continue
		}
		row := filled(len(axes), func(i int) int { return -1 })
		row[first.i], row[first.j] = first.a, first.b
		for k := range row {
			if row[k] >= 0 {
				continue
			}
			best, most := 0, -1
			for v := range axes[k] {
				n := 0
				for i, a := range row {
					switch {
					case a < 0 || i == k:
					case i < k && open[pair{i, a, k, v}], i > k && open[pair{k, v, i, a}]:
						n++
					}
				}
				if n > most {
					best, most = v, n
				}
			}
			row[k] = best
		}
		for j := range row {
			for i := range j {
				delete(open, pair{i, row[i], j, row[j]})
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// slots are the numbers of ranks among which a sample spreads its rows. Other
// numbers share the rows of one of them.
var slots = []int{1, 2, 3, 5}

// slotOf returns the value of the axis of ranks for n ranks.
func slotOf(n int) int {
	for i, s := range slots {
		if s == n {
			return i
		}
	}
	return n % len(slots)
}

// coverings keeps the results of covering, by the axes' lengths.
var coverings sync.Map

// sampled returns the rows of the smaller matrix for the job's number of ranks.
// With -short and under the race detector the number of ranks is one more axis,
// and each row belongs to one of them.
func (r *Rank) sampled(axes ...int) (rows [][]int) {
	var key [8]int
	copy(key[:], axes)
	spread := r.job.Spread
	if spread {
		key[len(axes)] = len(slots)
		axes = append(axes, len(slots))
	}
	all, ok := coverings.Load(key)
	if !ok {
		all, _ = coverings.LoadOrStore(key, covering(axes))
	}
	for _, row := range all.([][]int) {
		if !spread || row[len(row)-1] == slotOf(r.Size) {
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
