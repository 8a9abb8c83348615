package main

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// sparse multiplies a sparse matrix with a vector, which changes in every iteration. A row is a cell of a periodic
// square grid, and has an element for each cell of the star around it. The order of the columns is that of the cells with
// the bits of their numbers reversed, so that they lie scattered. The ranks have rows, and gather the whole vector.
func sparse(world *cohort.Comm, p params) (work, seconds float64, err error) {
	if p.size > 14 || 2*p.radius >= 1<<p.size || 1<<(2*p.size) < world.Size() {
		return 0, 0, fmt.Errorf("-size %d, radius %d: want at most size 14, and a star smaller than the grid", p.size, p.radius)
	}
	side := 1 << p.size
	n := side * side
	lo, hi := cohort.Block(n, world.Size(), world.Rank())
	perRow := 4*p.radius + 1
	columns := make([]int32, 0, (hi-lo)*perRow)
	for row := lo; row < hi; row++ {
		i, j := row/side, row%side
		at := len(columns)
		for k := -p.radius; k <= p.radius; k++ {
			columns = append(columns, scattered(i, (j+k)&(side-1), p.size))
			if k != 0 {
				columns = append(columns, scattered((i+k)&(side-1), j, p.size))
			}
		}
		slices.Sort(columns[at:])
	}
	values := make([]float64, len(columns))
	for e, column := range columns {
		values[e] = 1 / float64(column+1)
	}
	mine, all, result := make([]float64, hi-lo), make([]float64, n), make([]float64, hi-lo)
	counts := make([]int, world.Size())
	for q := range counts {
		from, to := cohort.Block(n, world.Size(), q)
		counts[q] = to - from
	}
	seconds, err = repeat(world, p.iterations, func() error {
		for i := range mine {
			mine[i] += float64(lo + i + 1)
		}
		if err := cohort.Allgatherv(world, mine, all, counts, nil); err != nil {
			return err
		}
		for i := range result {
			columns, sum := columns[i*perRow:][:perRow], 0.0
			for e, x := range values[i*perRow:][:len(columns)] {
				sum += x * all[columns[e]]
			}
			result[i] += sum
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	// In the k-th multiplication an element gives k: it is 1/(column+1), and the vector has k (column+1).
	off, want := 0.0, float64(perRow)*float64(p.iterations+1)*float64(p.iterations+2)/2
	for _, x := range result {
		off = max(off, math.Abs(x/want-1))
	}
	return 2 * float64(n) * float64(perRow), seconds, verify(world, off)
}

// scattered returns the column of a cell: its number with the bits reversed.
func scattered(i, j, size int) int32 {
	return int32(bits.Reverse32(uint32(i<<size|j)) >> (32 - 2*size))
}
