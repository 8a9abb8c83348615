// Command heat2d lets heat spread over a square plate whose edges are kept at 0. The grid is split
// over a Cartesian communicator. Before every step each rank exchanges its outer rows and columns
// with its neighbors. An Allreduce of the largest change (the residual) says when to stop.
//
//	go run ./cmd/cohort run -n 4 ./examples/heat2d
//
// A maximum does not depend on an order, so the result has the same bits for any number of ranks.
package main

import (
	"context"
	"fmt"
	"math"

	"github.com/cohort-hpc/cohort"
)

const (
	cells     = 120  // grid points along each side, without the edges
	ratio     = 0.2  // time step over the squared distance of grid points
	tolerance = 1e-4 // at rest when no cell changes by more in a step
)

func main() {
	cohort.Main(func(_ context.Context, world *cohort.Comm) error {
		_, steps, residual, err := simulate(world)
		if err == nil && world.Rank() == 0 {
			fmt.Printf("%d x %d cells, at rest after %d steps, residual %.6e\n", cells, cells, steps, residual)
		}
		return err
	})
}

func simulate(world *cohort.Comm) (p *plate, steps int, residual float64, err error) {
	grid, err := world.CartCreate([]int{0, 0}, []bool{false, false}, false)
	if err != nil {
		return nil, 0, 0, err
	}
	defer grid.Close()
	p = newPlate(grid.Dims(), grid.MyCoords())
	for residual = math.Inf(1); residual > tolerance; steps++ {
		for dim, side := range grid.Neighbors() {
			if err := p.pass(grid, dim, p.n[dim], side.Upper, 0, side.Lower); err != nil {
				return nil, 0, 0, err
			}
			if err := p.pass(grid, dim, 1, side.Lower, p.n[dim]+1, side.Upper); err != nil {
				return nil, 0, 0, err
			}
		}
		if residual, err = cohort.AllreduceOne(grid.Comm, p.step(), cohort.Max); err != nil {
			return nil, 0, 0, err
		}
	}
	return p, steps, residual, nil
}

// plate is a rank's part of the grid, with a halo of one cell that is 0 on the plate's edges.
type plate struct {
	first, n, stride [2]int // by dimension: first cell in the grid, number of cells, distance of cells in memory
	now, next        []float64
}

// newPlate returns the part at the given place. At first one half is hot and the other cold.
func newPlate(dims, at []int) *plate {
	p := new(plate)
	for k, d := range dims {
		lo, hi := cohort.Block(cells, d, at[k])
		p.first[k], p.n[k] = lo, hi-lo
	}
	p.stride = [2]int{p.n[1] + 2, 1}
	p.now, p.next = make([]float64, (p.n[0]+2)*p.stride[0]), make([]float64, (p.n[0]+2)*p.stride[0])
	for i := range p.n[0] {
		for j := range p.n[1] {
			x, y := float64(p.first[0]+i+1)/(cells+1), float64(p.first[1]+j+1)/(cells+1)
			p.now[(i+1)*p.stride[0]+j+1] = math.Sin(math.Pi*x) * math.Sin(2*math.Pi*y)
		}
	}
	return p
}

// line returns line k of a dimension: a row, or a column.
func (p *plate) line(dim, k int) cohort.View[float64] {
	along, across := p.stride[1-dim], p.stride[dim]
	return cohort.ViewOf(p.now[k*across+along:], cohort.Vector(p.n[1-dim], 1, along))
}

// pass sends line k of dimension dim to dest, and receives line halo from source. If source is ProcNull, line
// halo keeps its content.
func (p *plate) pass(grid *cohort.Cart, dim, k, dest, halo, source int) error {
	defer grid.Region("exchange").End() // a row of cohort run --stats
	_, err := cohort.SendrecvView(grid.Comm, p.line(dim, k), dest, dim, p.line(dim, halo), source, dim)
	return err
}

// step computes the next temperatures and returns the largest change.
func (p *plate) step() (change float64) {
	for i := 1; i <= p.n[0]; i++ {
		for c := i*p.stride[0] + 1; c <= i*p.stride[0]+p.n[1]; c++ {
			around := p.now[c-1] + p.now[c+1] + p.now[c-p.stride[0]] + p.now[c+p.stride[0]]
			p.next[c] = p.now[c] + ratio*(around-4*p.now[c])
			change = max(change, math.Abs(p.next[c]-p.now[c]))
		}
	}
	p.now, p.next = p.next, p.now
	return change
}
