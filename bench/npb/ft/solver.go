package main

import (
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
	"github.com/cohort-hpc/cohort/exact"
)

// solver is a rank's part of the problem. An array is shared out in two ways:
//
//   - in planes: the rank has all numbers with some z, as one block for each rank; block s has the y of rank s
//   - in columns: the rank has all numbers with some y, in the order of z, y and x
//
// Within a block numbers are in the order of z, y and x too. So block s of one way on rank r is block r of the other way
// on rank s, and an Alltoall leads from one to the other.
type solver struct {
	world       *cohort.Comm
	clock       *npb.Clock
	problem     problem
	nz, ny      int          // how many z, or y, this rank has
	z, y        int          // the first of them
	fx, fy, fz  *fourier     // transforms in each direction
	spectrum    []complex128 // in columns
	out, planes []complex128 // send and receive an Alltoall; the same on one rank, where there is nothing to send
}

func newSolver(world *cohort.Comm, p problem, clock *npb.Clock) *solver {
	size, rank := world.Size(), world.Rank()
	s := &solver{world: world, clock: clock, problem: p, nz: p.nz / size, ny: p.ny / size}
	s.z, s.y = rank*s.nz, rank*s.ny
	s.fx, s.fy, s.fz = newFourier(p.nx), newFourier(p.ny), newFourier(p.nz)
	n := p.nx * p.ny * s.nz
	s.spectrum, s.planes = make([]complex128, n), make([]complex128, n)
	s.out = s.planes
	if size > 1 {
		s.out = make([]complex128, n)
	}
	return s
}

// row returns the numbers with the z-th z and a y of an array in planes.
func (s *solver) row(a []complex128, z, y int) []complex128 {
	block, y := y/s.ny, y%s.ny
	return a[((block*s.nz+z)*s.ny+y)*s.problem.nx:][:s.problem.nx]
}

// compute is the part that the benchmark times. It returns the checksums at times 1, 2, 3, … in sums.
func (s *solver) compute(sums []complex128) error {
	if err := s.clock.Start(s.world); err != nil {
		return err
	}
	defer s.clock.Stop()
	s.fill()
	if err := s.forward(); err != nil {
		return err
	}
	for i := range sums {
		if err := s.solve(i + 1); err != nil {
			return err
		}
		var err error
		if sums[i], err = s.checksum(); err != nil {
			return err
		}
	}
	return nil
}

// fill puts random numbers into planes. The generator's sequence is in the order of z, y and x.
func (s *solver) fill() {
	random := npb.Seed
	random.Skip(2 * uint64(s.problem.nx*s.problem.ny*s.z))
	numbers := make([]float64, 2*s.problem.nx)
	for z := range s.nz {
		for y := range s.problem.ny {
			random.Fill(numbers)
			for x, row := 0, s.row(s.planes, z, y); x < len(row); x++ {
				row[x] = complex(numbers[2*x], numbers[2*x+1])
			}
		}
	}
}

// forward transforms planes into spectrum.
func (s *solver) forward() error {
	s.transformPlanes(s.planes, s.fx.forward, s.fy.forward)
	if err := s.transpose(s.planes, s.out); err != nil {
		return err
	}
	s.transformColumns(s.out, s.spectrum, s.fz.forward, 0)
	return nil
}

// solve computes planes at time t from spectrum.
func (s *solver) solve(t int) error {
	s.transformColumns(s.spectrum, s.out, s.fz.backward, t)
	if err := s.transpose(s.out, s.planes); err != nil {
		return err
	}
	s.transformPlanes(s.planes, s.fx.backward, s.fy.backward)
	return nil
}

// transpose leads from planes to columns, and back.
func (s *solver) transpose(send, recv []complex128) error {
	defer s.clock.Communication(time.Now())
	return cohort.Alltoall(s.world, send, recv)
}

// transformPlanes transforms an array in planes along x and y, in place.
func (s *solver) transformPlanes(a []complex128, fx, fy []int) {
	nx, ny, x, y := s.problem.nx, s.problem.ny, s.fx, s.fy
	for z := range s.nz {
		for first := 0; first < ny; first += width {
			for j := range width {
				for i, v := range s.row(a, z, first+j) {
					x.lanes[i][j] = v
				}
			}
			x.transform()
			for j := range width {
				row := s.row(a, z, first+j)
				for i, k := range fx {
					row[k] = x.lanes[i][j]
				}
			}
		}
		for first := 0; first < nx; first += width {
			for i := range y.lanes {
				y.lanes[i] = lane(s.row(a, z, i)[first:])
			}
			y.transform()
			for i, k := range fy {
				*(*lane)(s.row(a, z, k)[first:]) = y.lanes[i]
			}
		}
	}
}

// transformColumns transforms an array in columns along z, after it has multiplied the number of each frequency k
// by exp(-4απ²|k|²t).
func (s *solver) transformColumns(from, to []complex128, fz []int, t int) {
	p, f := s.problem, s.fz
	ex, ey, ez := decay(p.nx, t), decay(p.ny, t), decay(p.nz, t)
	for y := range s.ny {
		for first := 0; first < p.nx; first += width {
			place := func(z int) int { return (z*s.ny+y)*p.nx + first }
			for z := range f.lanes {
				to, from, factor := &f.lanes[z], (*lane)(from[place(z):]), ez[z]*ey[s.y+y]
				for j, e := range ex[first:][:width] {
					g := factor * e
					to[j] = complex(g*real(from[j]), g*imag(from[j]))
				}
			}
			f.transform()
			for i, k := range fz {
				*(*lane)(to[place(k):]) = f.lanes[i]
			}
		}
	}
}

// decay returns exp(-4απ²k²t) for the n frequencies k of one direction, of which the upper half are negative.
func decay(n, t int) []float64 {
	const alpha = 1e-6
	e := make([]float64, n)
	for i := range e {
		k := float64((i+n/2)%n - n/2)
		e[i] = math.Exp(-4 * alpha * math.Pi * math.Pi * k * k * float64(t))
	}
	return e
}

// checksum returns the sum of 1024 numbers of planes over the number of all. The sum is exact but for one rounding, so
// that it has the same bits on any number of ranks.
func (s *solver) checksum() (complex128, error) {
	p := s.problem
	var re, im []float64
	for j := 1; j <= 1024; j++ {
		x, y, z := j%p.nx, 3*j%p.ny, 5*j%p.nz-s.z
		if 0 <= z && z < s.nz {
			v := s.row(s.planes, z, y)[x]
			re, im = append(re, real(v)), append(im, imag(v))
		}
	}
	defer s.clock.Communication(time.Now())
	a, err := exact.Sum(s.world, re)
	if err != nil {
		return 0, err
	}
	b, err := exact.Sum(s.world, im)
	n := float64(p.nx * p.ny * p.nz)
	return complex(a/n, b/n), err
}
