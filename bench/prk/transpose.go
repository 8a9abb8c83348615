package main

import (
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

// transpose adds the transpose of a matrix a to b, and then 1 to every element of a. The ranks have rows. Each
// transposes, for every rank, the block of its rows that become rows of that rank, and sends the blocks by
// Alltoallv, or puts them into a window of the other rank.
func transpose(world *cohort.Comm, p params) (work, seconds float64, err error) {
	n, size, me := p.size, world.Size(), world.Rank()
	if n < size {
		return 0, 0, fmt.Errorf("-size %d: want at least as many rows as the %d ranks", n, size)
	}
	lo, hi := cohort.Block(n, size, me)
	rows := hi - lo
	a, b := make([]float64, rows*n), make([]float64, rows*n)
	for i := range a {
		a[i] = float64(lo*n + i)
	}
	send, recv, counts := make([]float64, rows*n), make([]float64, rows*n), make([]int, size)
	for q := range size {
		from, to := cohort.Block(n, size, q)
		counts[q] = rows * (to - from)
	}
	exchange := func() error { return cohort.Alltoallv(world, send, counts, nil, recv, counts, nil) }
	if p.oneSided {
		win, err := cohort.NewWindow[float64](world, rows*n)
		if err != nil {
			return 0, 0, err
		}
		defer win.Close()
		if recv, err = win.Local(); err != nil {
			return 0, 0, err
		}
		exchange = func() error {
			if err := win.Fence(); err != nil { // all have read what they got last time
				return err
			}
			at := 0
			for q, count := range counts {
				from, to := cohort.Block(n, size, q)
				if err := win.Put(send[at:at+count], q, lo*(to-from)); err != nil { // behind the blocks of the ranks before
					return err
				}
				at += count
			}
			return win.Fence()
		}
	}
	seconds, err = repeat(world, p.iterations, func() error {
		at := 0
		for q := range size {
			from, to := cohort.Block(n, size, q)
			turn(send[at:at+counts[q]], a, n, from, to)
			at += counts[q]
		}
		if err := exchange(); err != nil {
			return err
		}
		at = 0
		for q := range size {
			from, to := cohort.Block(n, size, q)
			for i := range rows {
				block, row := recv[at:][:to-from], b[i*n+from:i*n+to]
				for j, x := range block {
					row[j] += x
				}
				at += to - from
			}
		}
		for i := range a {
			a[i]++
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	off, times := 0.0, float64(p.iterations+1)
	for i := range rows {
		for j, x := range b[i*n : i*n+n] {
			want := times * (float64(j*n+lo+i) + float64(p.iterations)/2)
			off = max(off, math.Abs(x-want)) // whole numbers
		}
	}
	return 2 * 8 * float64(n) * float64(n), seconds, verify(world, off)
}

// tile is the side of the squares by which turn goes, so that what it reads and writes stays in the cache.
const tile = 32

// turn writes the transpose of columns from to to of a matrix with rows of n elements to dst.
func turn(dst, a []float64, n, from, to int) {
	rows := len(a) / n
	for i0 := 0; i0 < rows; i0 += tile {
		i1 := min(i0+tile, rows)
		for j0 := from; j0 < to; j0 += tile {
			for j := j0; j < min(j0+tile, to); j++ {
				line := dst[(j-from)*rows+i0:][:i1-i0]
				for i := range line {
					line[i] = a[(i0+i)*n+j]
				}
			}
		}
	}
}
