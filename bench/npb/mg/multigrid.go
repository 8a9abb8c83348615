package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
	"github.com/cohort-hpc/cohort/exact"
)

// multigrid solves a problem on grids of 2, 4, 8, … points in each direction.
type multigrid struct {
	problem problem
	clock   *npb.Clock
	cart    *cohort.Cart
	levels  []level // the coarsest first
	v       *grid   // on the finest level
}

// level is the correction u and the residual r on one grid; on the finest level, the solution and its residual.
type level struct {
	u, r *grid
	part *grid // this rank's part of u or r, if all ranks have all of them but the next level is shared out
}

// A cube of this many points in each direction or fewer is not shared out: every rank computes all of it. That takes less
// time than exchanging halos.
const wholeMax = 16

func newMultigrid(world *cohort.Comm, p problem, clock *npb.Clock) (*multigrid, error) {
	cart, err := world.CartCreate([]int{0, 0}, []bool{true, true}, true)
	if err != nil {
		return nil, err
	}
	// Two points of a shared grid on each rank are one of the next coarser grid.
	widest := max(cart.Dims()[0], cart.Dims()[1])
	if size := world.Size(); size&(size-1) != 0 || 2*widest > p.n {
		cart.Close()
		return nil, fmt.Errorf("%d ranks: want a power of two, and at most %d along each of two directions", size, p.n/2)
	}
	m := &multigrid{problem: p, clock: clock, cart: cart, v: newGrid(p.n, cart, clock)}
	whole := func(n int) bool { return world.Size() > 1 && n < p.n && (n <= wholeMax || n < 2*widest) }
	for n := 2; n <= p.n; n *= 2 {
		on := cart
		if whole(n) {
			on = nil
		}
		l := level{u: newGrid(n, on, clock), r: newGrid(n, on, clock)}
		if whole(n) && !whole(2*n) {
			l.part = newGrid(n, cart, clock)
		}
		m.levels = append(m.levels, l)
	}
	return m, nil
}

// solve is what the benchmark does. It returns the norm of the residual after all cycles.
func (m *multigrid) solve() (norm float64, err error) {
	finest := m.levels[len(m.levels)-1]
	clear(finest.u.v)
	if err := m.charge(); err != nil {
		return 0, err
	}
	if err := m.clock.Start(m.cart.Comm); err != nil {
		return 0, err
	}
	defer m.clock.Stop()
	if err := residual(finest.r, m.v, finest.u, &poisson); err != nil {
		return 0, err
	}
	for range m.problem.cycles {
		if err := m.cycle(); err != nil {
			return 0, err
		}
		if err := residual(finest.r, m.v, finest.u, &poisson); err != nil {
			return 0, err
		}
	}
	return m.norm(finest.r)
}

// cycle is a V-cycle, which improves the solution by its residual.
func (m *multigrid) cycle() error {
	top := len(m.levels) - 1
	for k := top; k > 0; k-- {
		if err := m.project(k); err != nil {
			return err
		}
	}
	for k, l := range m.levels {
		right := l.r
		if k == top {
			right = m.v
		} else {
			clear(l.u.v)
		}
		if k > 0 {
			m.interpolate(k)
			if err := residual(l.r, right, l.u, &poisson); err != nil {
				return err
			}
		}
		if err := smooth(l.u, l.r, &m.problem.smoother); err != nil {
			return err
		}
	}
	return nil
}

// project computes the residual of level k-1 from that of level k.
func (m *multigrid) project(k int) error {
	coarse, fine := m.levels[k-1], m.levels[k]
	if coarse.part == nil {
		project(coarse.r, fine.r)
		return coarse.r.fillHalo()
	}
	project(coarse.part, fine.r)
	return coarse.r.gather(coarse.part)
}

// interpolate adds the correction of level k-1 to that of level k.
func (m *multigrid) interpolate(k int) {
	coarse := m.levels[k-1].u
	if part := m.levels[k-1].part; part != nil {
		part.cut(coarse)
		coarse = part
	}
	interpolate(m.levels[k].u, coarse)
}

// norm returns the root of the mean of the squares. The sum of the sums of all rows is exact but for one rounding, so that
// the norm has the same bits on any number of ranks.
func (m *multigrid) norm(r *grid) (float64, error) {
	rows := make([]float64, 0, r.nz*r.ny)
	for z := range r.nz {
		for y := range r.ny {
			sum := 0.0
			for _, x := range r.row(z+1, y+1)[1 : r.nx+1] {
				sum += x * x
			}
			rows = append(rows, sum)
		}
	}
	defer m.clock.Communication(time.Now())
	sum, err := exact.Sum(m.cart.Comm, rows)
	return math.Sqrt(sum / float64(r.nx*r.nx*r.nx)), err
}

// extremes is how many points have the charge 1, and how many -1.
const extremes = 10

// place is a point of the cube, counted in the order of z, y and x, and the number that the generator gives it.
type place struct {
	Number float64
	Index  int64
}

// charge sets v to 1 at the points with the largest random numbers, to -1 at those with the smallest, and to 0 elsewhere.
func (m *multigrid) charge() error {
	v, n := m.v, m.problem.n
	var largest, smallest list
	numbers := make([]float64, n)
	for z := range v.nz {
		for y := range v.ny {
			first := v.index(z, y)
			random := npb.Seed
			random.Skip(uint64(first))
			random.Fill(numbers)
			for x, number := range numbers {
				largest.put(place{number, int64(first + x)})
				smallest.put(place{-number, int64(first + x)})
			}
		}
	}
	send, recv := slices.Concat(largest, smallest), make([]place, 2*extremes*m.cart.Size())
	if err := cohort.Allgather(m.cart.Comm, send, recv); err != nil {
		return err
	}
	largest, smallest = nil, nil
	for ; len(recv) > 0; recv = recv[2*extremes:] {
		largest.put(recv[:extremes]...)
		smallest.put(recv[extremes:][:extremes]...)
	}
	clear(v.v)
	for i, p := range slices.Concat(largest, smallest) {
		x, y, z := int(p.Index)%n, int(p.Index)/n%n-v.y, int(p.Index)/n/n-v.z
		if y >= 0 && y < v.ny && z >= 0 && z < v.nz {
			v.row(z+1, y+1)[x+1] = 1
			if i >= extremes {
				v.row(z+1, y+1)[x+1] = -1
			}
		}
	}
	return v.fillHalo()
}

// list is the places with the largest numbers, at most ten, in falling order.
type list []place

// put adds those of the places that belong into the list.
func (l *list) put(places ...place) {
	for _, p := range places {
		if len(*l) == extremes && p.Number <= (*l)[extremes-1].Number {
			continue
		}
		i, _ := slices.BinarySearchFunc(*l, p, func(a, b place) int { return cmp.Compare(b.Number, a.Number) })
		*l = slices.Insert(*l, i, p)
		*l = (*l)[:min(len(*l), extremes)]
	}
}
