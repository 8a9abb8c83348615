// Command fft3d transforms a field in three dimensions with gonum's one-dimensional transforms. Each rank
// has a pencil of the field: some of the lines along one dimension, each of them whole. It transforms these
// lines. Then the ranks exchange blocks, so that their pencils lie along the next dimension. Layouts say
// where the points of a block are on both sides, and AlltoallView moves the points.
//
//	go run ./cmd/cohort run -n 4 ./gonum/examples/fft3d
//
// No line is transformed in parts, so the result has the same bits for any number of ranks.
package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/cohort-hpc/cohort"
)

// extents are the points of the field in each dimension. The numbers of ranks need not divide them.
var extents = [3]int{33, 32, 21}

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error { return compare(world) })
}

// compare prints how far the transform is from a serial one, and from Parseval's theorem: the sum of the
// squares of all points grows by their number.
func compare(world *cohort.Comm) error {
	grid, err := world.CartCreate([]int{0, 0}, []bool{false, false}, false)
	if err != nil {
		return err
	}
	defer grid.Close()
	p, err := transform(grid)
	if err != nil {
		return err
	}
	serial := newPencil(2, []int{1, 1}, []int{0, 0}).fill()
	want := serial.squares() * float64(len(serial.data))
	if err := errors.Join(serial.transform(2), serial.transform(1), serial.transform(0)); err != nil {
		return err
	}
	worst := 0.0
	for i, x := range p.data {
		at := p.point(i)
		worst = max(worst, cmplx.Abs(x-serial.data[(at[0]*extents[1]+at[1])*extents[2]+at[2]]))
	}
	worst, far := cohort.AllreduceOne(world, worst, cohort.Max)
	sum, err := cohort.AllreduceOne(world, p.squares(), cohort.Sum)
	if world.Rank() == 0 && far == nil && err == nil {
		fmt.Printf("%v points on %v ranks: %g from the serial transform; sum of squares over Parseval's: %.12f\n",
			extents, grid.Dims(), worst, sum/want)
	}
	return errors.Join(far, err)
}

// transform returns this rank's part of the transform, a pencil along dimension 0.
func transform(grid *cohort.Cart) (*pencil, error) {
	dims, at := grid.Dims(), grid.MyCoords()
	p := newPencil(2, dims, at).fill()
	err := p.transform(2)
	for dim := 1; dim >= 0 && err == nil; dim-- {
		// Ranks that differ in one coordinate exchange blocks: their pencils were along dim+1, and will be along dim.
		row, err := grid.Split(at[1-dim], at[dim])
		if err != nil {
			return nil, err
		}
		next := newPencil(dim, dims, at)
		var send, recv []cohort.View[complex128]
		for r := range dims[dim] {
			send = append(send, p.block(dim+1, dims[dim], r))
			recv = append(recv, next.block(dim, dims[dim], r))
		}
		p = next
		if err := errors.Join(cohort.AlltoallView(row, send, recv), p.transform(dim), row.Close()); err != nil {
			return nil, err
		}
	}
	return p, err
}

// pencil is a box of points: the first one, and how many there are in each dimension, the last contiguous.
type pencil struct {
	first, n [3]int
	data     []complex128
}

// newPencil returns the pencil along one dimension of the rank at the given place of a grid. The grid's dimensions
// divide the other two dimensions of the field.
func newPencil(along int, dims, at []int) *pencil {
	p := &pencil{n: extents}
	for k, split := range [][]int{{1, 2}, {0, 2}, {0, 1}}[along] {
		lo, hi := cohort.Block(extents[split], dims[k], at[k])
		p.first[split], p.n[split] = lo, hi-lo
	}
	p.data = make([]complex128, p.n[0]*p.n[1]*p.n[2])
	return p
}

// fill stores the field: a wave that fades away from a point.
func (p *pencil) fill() *pencil {
	for i := range p.data {
		x := p.point(i)
		a, b, c := float64(x[0]-9), float64(x[1]-8), float64(x[2]-5)
		p.data[i] = cmplx.Rect(math.Exp(-(a*a+2*b*b+3*c*c)/99), a+b/2-c/3)
	}
	return p
}

// point returns where in the field an element of data is.
func (p *pencil) point(i int) [3]int {
	return [3]int{p.first[0] + i/(p.n[1]*p.n[2]), p.first[1] + i/p.n[2]%p.n[1], p.first[2] + i%p.n[2]}
}

// block returns the points of p that belong to rank r when dimension dim is divided among ranks.
func (p *pencil) block(dim, ranks, r int) cohort.View[complex128] {
	n, start := p.n, [3]int{}
	lo, hi := cohort.Block(p.n[dim], ranks, r)
	start[dim], n[dim] = lo, hi-lo
	return cohort.ViewOf(p.data, cohort.Subarray(p.n[:], n[:], start[:]))
}

// transform transforms all lines along a dimension.
func (p *pencil) transform(dim int) (err error) {
	n, stride := p.n[dim], [3]int{p.n[1] * p.n[2], p.n[2], 1}[dim]
	fft, line := fourier.NewCmplxFFT(n), make([]complex128, n)
	for i := range p.data {
		if i/stride%n == 0 { // the first point of a line
			v := cohort.ViewOf(p.data[i:], cohort.Vector(n, 1, stride))
			err = errors.Join(err, v.Pack(line), v.Unpack(fft.Coefficients(line, line)))
		}
	}
	return err
}

// squares returns the sum of the squares of the absolute values.
func (p *pencil) squares() (sum float64) {
	for _, x := range p.data {
		sum += real(x)*real(x) + imag(x)*imag(x)
	}
	return sum
}
