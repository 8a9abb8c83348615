package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
)

// cube is all points of a periodic grid.
type cube struct {
	n int
	v []float64
}

func (c cube) at(z, y, x int) *float64 {
	wrap := func(i int) int { return (i + c.n) % c.n }
	return &c.v[(wrap(z)*c.n+wrap(y))*c.n+wrap(x)]
}

func randomCube(n int, seed uint64) cube {
	random := rand.New(rand.NewPCG(seed, 0))
	c := cube{n, make([]float64, n*n*n)}
	for i := range c.v {
		c.v[i] = random.Float64() - 0.5
	}
	return c
}

// stencil returns the sum of the 27 points around one, times the coefficients.
func (c cube) stencil(z, y, x int, k coefficients) (sum float64) {
	for dz := -1; dz <= 1; dz++ {
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				sum += k[dz*dz+dy*dy+dx*dx] * *c.at(z+dz, y+dy, x+dx)
			}
		}
	}
	return sum
}

// points calls do for each point of a rank's part, with and without the halo, and its place in the cube.
func (g *grid) points(do func(v *float64, z, y, x int)) {
	for z := range g.nz + 2 {
		for y := range g.ny + 2 {
			row := g.row(z, y)
			for x := range row {
				do(&row[x], g.z+z-1, g.y+y-1, x-1)
			}
		}
	}
}

// set copies the rank's part and its halo from a cube.
func (g *grid) set(c cube) *grid {
	g.points(func(v *float64, z, y, x int) { *v = *c.at(z, y, x) })
	return g
}

// compare returns an error if a point of the rank's part, or of its halo, is not what want says.
func (g *grid) compare(what string, want func(z, y, x int) float64) (err error) {
	g.points(func(v *float64, z, y, x int) {
		if w := want(z, y, x); math.Abs(*v-w) > 1e-14*(1+math.Abs(w)) {
			err = fmt.Errorf("%s: point %d, %d, %d is %v, want %v", what, z, y, x, *v, w)
		}
	})
	return err
}

// Each operator is the sum over 27 points of its definition, on all points of all ranks and in their halos.
func TestOperatorsAreTheirDefinitions(t *testing.T) {
	const n = 16
	u, v, coarse := randomCube(n, 1), randomCube(n, 2), randomCube(n/2, 3)
	half := coefficients{1. / 2, 1. / 4, 1. / 8, 1. / 16}
	everywhere(t, func(world *cohort.Comm, cart *cohort.Cart) error {
		clock := new(npb.Clock)
		new := func(n int) *grid { return newGrid(n, cart, clock) }
		r := new(n)
		if err := residual(r, new(n).set(v), new(n).set(u), &poisson); err != nil {
			return err
		}
		err := r.compare("residual", func(z, y, x int) float64 { return *v.at(z, y, x) - u.stencil(z, y, x, poisson) })
		if err != nil {
			return err
		}
		s := new(n).set(v)
		if err := smooth(s, new(n).set(u), &short); err != nil {
			return err
		}
		err = s.compare("smooth", func(z, y, x int) float64 { return *v.at(z, y, x) + u.stencil(z, y, x, short) })
		if err != nil {
			return err
		}
		p := new(n / 2)
		project(p, new(n).set(u))
		if err := p.fillHalo(); err != nil {
			return err
		}
		// The report counts points from 1.
		err = p.compare("project", func(z, y, x int) float64 { return u.stencil(2*z+1, 2*y+1, 2*x+1, half) })
		if err != nil {
			return err
		}
		q := new(n).set(v)
		interpolate(q, new(n/2).set(coarse))
		spread := cube{n, make([]float64, n*n*n)} // the transpose of project, twice
		for i, c := range coarse.v {
			z, y, x := 2*(i/(n/2)/(n/2))+1, 2*(i/(n/2)%(n/2))+1, 2*(i%(n/2))+1
			for d := range 27 {
				dz, dy, dx := d/9-1, d/3%3-1, d%3-1
				*spread.at(z+dz, y+dy, x+dx) += 2 * half[dz*dz+dy*dy+dx*dx] * c
			}
		}
		return q.compare("interpolate", func(z, y, x int) float64 { return *v.at(z, y, x) + *spread.at(z, y, x) })
	})
}

// A cube that is gathered on all ranks is whole, and cutting this rank's part out gives the part back.
func TestGatherAndCutMoveAllPoints(t *testing.T) {
	const n = 8
	c := randomCube(n, 4)
	everywhere(t, func(world *cohort.Comm, cart *cohort.Cart) error {
		whole, part := newGrid(n, nil, nil), newGrid(n, cart, new(npb.Clock))
		if err := whole.gather(newGrid(n, cart, new(npb.Clock)).set(c)); err != nil {
			return err
		}
		want := func(z, y, x int) float64 { return *c.at(z, y, x) }
		if err := whole.compare("gather", want); err != nil {
			return err
		}
		part.cut(whole)
		return part.compare("cut", want)
	})
}

// The charges are at the largest and smallest of all random numbers.
func TestChargesAreAtTheExtremes(t *testing.T) {
	p := classes["S"]
	numbers := make([]float64, p.n*p.n*p.n)
	random := npb.Seed
	random.Fill(numbers)
	order := make([]int, len(numbers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(numbers[i], numbers[j]) })
	want := cube{p.n, make([]float64, len(numbers))}
	for i := range extremes {
		want.v[order[i]], want.v[order[len(order)-1-i]] = -1, 1
	}
	everywhere(t, func(world *cohort.Comm, _ *cohort.Cart) error {
		m, err := newMultigrid(world, p, new(npb.Clock))
		if err != nil {
			return err
		}
		defer m.cart.Close()
		if err := m.charge(); err != nil {
			return err
		}
		return m.v.compare("charge", func(z, y, x int) float64 { return *want.at(z, y, x) })
	})
}

// The residual at the end has the same bits at every point on any number of ranks, and so has its norm.
func TestResultDoesNotDependOnRanks(t *testing.T) {
	alone, norms := uint64(0), make([]float64, 17)
	everywhere(t, func(world *cohort.Comm, _ *cohort.Cart) error {
		m, err := newMultigrid(world, classes["S"], new(npb.Clock))
		if err != nil {
			return err
		}
		defer m.cart.Close()
		norm, err := m.solve()
		if err != nil {
			return err
		}
		all := uint64(0)
		r := m.levels[len(m.levels)-1].r
		for z := range r.nz {
			for y := range r.ny {
				for x, v := range r.row(z+1, y+1)[1 : r.nx+1] {
					all += uint64(2*(r.index(z, y)+x)+1) * math.Float64bits(v)
				}
			}
		}
		if all, err = cohort.AllreduceOne(world, all, cohort.Sum); err != nil {
			return err
		}
		if world.Rank() == 0 {
			norms[world.Size()] = norm
			if world.Size() == 1 {
				alone = all
			}
			if all != alone || norm != norms[1] {
				return fmt.Errorf("the residuals or their norm %v differ from those on one rank, %v", norm, norms[1])
			}
		}
		return nil
	})
}

func TestRunRefusesRanksThatCannotShareTheCube(t *testing.T) {
	for ranks, p := range map[int]problem{3: classes["S"], 8: {n: 4}} {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			if _, err := run(world, p, new(npb.Clock)); err == nil {
				t.Errorf("%d ranks got no error for %d points", ranks, p.n)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// everywhere runs a function on 1, 2, 4, 8 and 16 ranks that form a periodic grid.
func everywhere(t *testing.T, body func(world *cohort.Comm, cart *cohort.Cart) error) {
	t.Helper()
	for ranks := 1; ranks <= 16; ranks *= 2 {
		err := cohort.Run(context.Background(), ranks, func(world *cohort.Comm) error {
			cart, err := world.CartCreate([]int{0, 0}, []bool{true, true}, false)
			if err != nil {
				return err
			}
			defer cart.Close()
			return body(world, cart)
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
	}
}
