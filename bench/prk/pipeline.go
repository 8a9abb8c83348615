package main

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

// pipeline is Synch_p2p: each cell is the one above plus the one to the left minus the one between them. The
// ranks have columns, so a rank needs a row's last cell from the rank to its left before it can go on, and the work
// runs through the ranks as through a pipeline. Between iterations the last cell, negated, becomes the first.
func pipeline(world *cohort.Comm, p params) (work, seconds float64, err error) {
	n, rank, last := p.size, world.Rank(), world.Size()-1
	if n <= world.Size() {
		return 0, 0, fmt.Errorf("-size %d: want more columns than the %d ranks", n, world.Size())
	}
	lo, hi := cohort.Block(n-1, world.Size(), rank) // column 0 does not change
	width := 1 + hi - lo                            // with the column before the rank's first
	grid := make([]float64, n*width)
	for j := range width {
		grid[j] = float64(lo + j) // row 0 does not change either
	}
	if rank == 0 {
		for i := range n {
			grid[i*width] = float64(i)
		}
	}
	column := make([]float64, p.group)
	corner := grid[len(grid)-1:]
	seconds, err = repeat(world, p.iterations, func() error {
		for row := 1; row < n; row += p.group {
			end := min(row+p.group, n)
			if rank > 0 {
				if _, err := cohort.Recv(world, column[:end-row], rank-1, 0); err != nil {
					return err
				}
				for i := row; i < end; i++ {
					grid[i*width] = column[i-row]
				}
			}
			for i := row; i < end; i++ {
				above, cells := grid[(i-1)*width:][:width], grid[i*width:][:width]
				for j := 1; j < len(cells); j++ {
					cells[j] = above[j] + cells[j-1] - above[j-1]
				}
				column[i-row] = cells[width-1]
			}
			if rank < last {
				if err := cohort.Send(world, column[:end-row], rank+1, 0); err != nil {
					return err
				}
			}
		}
		if last > 0 && rank == last {
			return cohort.Send(world, corner, 0, 1)
		}
		if rank == 0 {
			grid[0] = corner[0]
			if last > 0 {
				if _, err := cohort.Recv(world, grid[:1], last, 1); err != nil {
					return err
				}
			}
			grid[0] = -grid[0]
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	// Each iteration adds the cells of the last row's and column's ends to the corner.
	off := 0.0
	if rank == 0 {
		off = math.Abs(-grid[0]/(float64(p.iterations+1)*float64(2*n-2)) - 1)
	}
	return 2 * float64(n-1) * float64(n-1), seconds, verify(world, off)
}
