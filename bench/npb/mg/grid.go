package main

import (
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// grid is a periodic cube of numbers, or a rank's part of one, which is shared out along z and y. Numbers are in the
// order of z, y and x. Around them is a halo of one point, which contains the neighbors' outermost points.
type grid struct {
	nz, ny, nx int // points without the halo
	z, y       int // where in the cube the first of them is
	v          []float64
	cart       *cohort.Cart // shares the cube out; nil if all of it is here
	clock      *npb.Clock
	faces      [2]faces     // along z and y
	sums       [3][]float64 // memory for sweep
}

// faces is what the neighbors along a direction exchange: the first and last points, and the halo before and after them.
type faces struct{ before, first, last, after cohort.View[float64] }

// newGrid returns this rank's part of a cube of n points in each direction.
func newGrid(n int, cart *cohort.Cart, clock *npb.Clock) *grid {
	g := &grid{nz: n, ny: n, nx: n, cart: cart, clock: clock}
	if cart != nil {
		at := cart.MyCoords()
		g.nz, g.ny = n/cart.Dims()[0], n/cart.Dims()[1]
		g.z, g.y = at[0]*g.nz, at[1]*g.ny
	}
	g.v = make([]float64, (g.nz+2)*(g.ny+2)*(n+2))
	for i := range g.sums {
		g.sums[i] = make([]float64, n+2)
	}
	for d, n := range []int{g.nz, g.ny} {
		g.faces[d] = faces{g.face(d, 0), g.face(d, 1), g.face(d, n), g.face(d, n+1)}
	}
	return g
}

// face returns all points, with those of the halo, at one place along a direction.
func (g *grid) face(direction, at int) cohort.View[float64] {
	all := []int{g.nz + 2, g.ny + 2, g.nx + 2}
	part, start := []int{g.nz + 2, g.ny + 2, g.nx + 2}, []int{0, 0, 0}
	part[direction], start[direction] = 1, at
	return cohort.ViewOf(g.v, cohort.Subarray(all, part, start))
}

// row returns the points with a z and y, which are 0 and n+1 in the halo.
func (g *grid) row(z, y int) []float64 { return g.v[(z*(g.ny+2)+y)*(g.nx+2):][:g.nx+2] }

// index returns where in the cube, in the order of z, y and x, the row begins that is this rank's z-th and y-th.
func (g *grid) index(z, y int) int {
	return ((g.z+z)*g.nx + g.y + y) * g.nx
}

// fillHalo gets the halo from the neighbors: first along x, where a rank has all points, then along y and z, so that
// edges and corners come along.
func (g *grid) fillHalo() error {
	for z := 1; z <= g.nz; z++ {
		for y := 1; y <= g.ny; y++ {
			row := g.row(z, y)
			row[0], row[g.nx+1] = row[g.nx], row[1]
		}
	}
	if !g.shared(1) {
		for z := 1; z <= g.nz; z++ {
			copy(g.row(z, 0), g.row(z, g.ny))
			copy(g.row(z, g.ny+1), g.row(z, 1))
		}
	} else if err := g.exchange(1); err != nil {
		return err
	}
	if !g.shared(0) {
		plane := (g.ny + 2) * (g.nx + 2)
		copy(g.v[:plane], g.v[g.nz*plane:])
		copy(g.v[(g.nz+1)*plane:], g.v[plane:2*plane])
		return nil
	}
	return g.exchange(0)
}

// shared reports whether other ranks have points along a direction.
func (g *grid) shared(direction int) bool { return g.cart != nil && g.cart.Dims()[direction] > 1 }

// exchange fills the halo along a direction from other ranks.
func (g *grid) exchange(direction int) error {
	defer g.clock.Communication(time.Now())
	side, f := g.cart.Neighbors()[direction], &g.faces[direction]
	if _, err := cohort.SendrecvView(g.cart.Comm, f.last, side.Upper, 0, f.before, side.Lower, 0); err != nil {
		return err
	}
	_, err := cohort.SendrecvView(g.cart.Comm, f.first, side.Lower, 1, f.after, side.Upper, 1)
	return err
}

// gather fills g, which is whole on every rank, from the parts of all ranks.
func (g *grid) gather(part *grid) error {
	own, all := make([]float64, part.nz*part.ny*part.nx), make([]float64, g.nz*g.ny*g.nx)
	inside := cohort.Subarray([]int{part.nz + 2, part.ny + 2, part.nx + 2}, []int{part.nz, part.ny, part.nx}, []int{1, 1, 1})
	if err := cohort.ViewOf(part.v, inside).Pack(own); err != nil {
		return err
	}
	begin := time.Now()
	if err := cohort.Allgather(part.cart.Comm, own, all); err != nil {
		return err
	}
	part.clock.Communication(begin)
	for rank := range part.cart.Size() {
		at, err := part.cart.Coords(rank)
		if err != nil {
			return err
		}
		place := cohort.Subarray([]int{g.nz + 2, g.ny + 2, g.nx + 2}, []int{part.nz, part.ny, part.nx}, []int{1 + at[0]*part.nz, 1 + at[1]*part.ny, 1})
		if err := cohort.ViewOf(g.v, place).Unpack(all[rank*len(own):][:len(own)]); err != nil {
			return err
		}
	}
	return g.fillHalo()
}

// cut copies this rank's part and its halo from whole.
func (g *grid) cut(whole *grid) {
	for z := range g.nz + 2 {
		for y := range g.ny + 2 {
			copy(g.row(z, y), whole.row(g.z+z, g.y+y))
		}
	}
}
