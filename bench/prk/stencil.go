package main

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

// stencil adds to each cell of a grid the weighted sum of the cells of another grid that lie in a star around it.
// The ranks form a Cartesian grid of blocks. Each has a halo as wide as the radius.
func stencil(world *cohort.Comm, p params) (work, seconds float64, err error) {
	cart, err := world.CartCreate([]int{0, 0}, []bool{false, false}, false)
	if err != nil {
		return 0, 0, err
	}
	defer cart.Close()
	n, r := p.size, p.radius
	var lo, hi [2]int // the block's rows and columns in the grid
	for d, ranks := range cart.Dims() {
		if n < 2*r+1 || n/ranks < r {
			return 0, 0, fmt.Errorf("-size %d: too small for radius %d on %v ranks", n, r, cart.Dims())
		}
		lo[d], hi[d] = cohort.Block(n, ranks, cart.MyCoords()[d])
	}
	rows, columns := hi[0]-lo[0], hi[1]-lo[1]
	width := columns + 2*r
	in, out := make([]float64, (rows+2*r)*width), make([]float64, rows*columns)
	row := func(i int) []float64 { return in[(i+r)*width:][:width] } // from r on its own cells
	for i := range rows {
		for j := range columns {
			row(i)[r+j] = float64(lo[0] + i + lo[1] + j)
		}
	}
	// strip returns r rows, or columns, of the block: those from i on.
	strip := func(dim, i int) cohort.View[float64] {
		if dim == 0 {
			return cohort.ViewOf(in[(i+r)*width+r:], cohort.Vector(r, columns, width))
		}
		return cohort.ViewOf(in[r*width+i+r:], cohort.Vector(rows, r, width))
	}
	extent := [2]int{rows, columns}
	weights := make([]float64, r+1) // of a cell by its distance; those on the other side have the sign changed
	for k := 1; k <= r; k++ {
		weights[k] = 1 / float64(2*k*r)
	}
	first := [2]int{max(0, r-lo[0]), max(0, r-lo[1])} // cells nearer to the grid's edge than r stay as they are
	end := [2]int{min(rows, n-r-lo[0]), min(columns, n-r-lo[1])}
	seconds, err = repeat(world, p.iterations, func() error {
		for dim, side := range cart.Neighbors() {
			if _, err := cohort.SendrecvView(cart.Comm, strip(dim, extent[dim]-r), side.Upper, dim, strip(dim, -r), side.Lower, dim); err != nil {
				return err
			}
			if _, err := cohort.SendrecvView(cart.Comm, strip(dim, 0), side.Lower, dim, strip(dim, extent[dim]), side.Upper, dim); err != nil {
				return err
			}
		}
		for i := first[0]; i < end[0]; i++ {
			from, to := first[1], end[1]
			sum := out[i*columns:][from:to]
			for k := 1; k <= r; k++ {
				w, cells := weights[k], row(i)
				right, left := cells[r+from+k:][:len(sum)], cells[r+from-k:][:len(sum)]
				below, above := row(i + k)[r+from:][:len(sum)], row(i - k)[r+from:][:len(sum)]
				for j := range sum {
					sum[j] += w * (right[j] - left[j] + below[j] - above[j])
				}
			}
		}
		for i := range rows {
			for j, cells := 0, row(i)[r:r+columns]; j < len(cells); j++ {
				cells[j]++
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	// The grid is the sum of the cell's two coordinates, so the star gives 1 for each, in every iteration.
	want, off := 2*float64(p.iterations+1), 0.0
	for i := range rows {
		for j, x := range out[i*columns:][:columns] {
			if i >= first[0] && i < end[0] && j >= first[1] && j < end[1] {
				x = x/want - 1
			}
			off = max(off, math.Abs(x))
		}
	}
	inner := float64(n - 2*r)
	return float64(2*(4*r+1)+1) * inner * inner, seconds, verify(world, off)
}
