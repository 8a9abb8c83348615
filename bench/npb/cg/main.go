// Command cg is kernel CG of the NAS Parallel Benchmarks: an estimate of the smallest eigenvalue of a sparse symmetric
// matrix by inverse iteration. Each step solves a linear system by 25 iterations of the conjugate gradient method.
//
//	go run ./cmd/cohort run -n 2 ./bench/npb/cg -class A
//
// A rank has a block of rows. For a product with the matrix all ranks gather the vector. Any number of ranks is allowed,
// and gives the same bits.
package main

import (
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/bench/npb"
	"github.com/cohort-hpc/cohort/exact"
)

type problem struct {
	rows, nonzeros int // nonzeros of each random vector that the matrix is made of
	iterations     int
	shift, zeta    float64
}

var classes = map[string]problem{
	"S": {1400, 7, 15, 10, 8.5971775078648},
	"W": {7000, 8, 15, 12, 10.362595087124},
	"A": {14000, 11, 15, 20, 17.130235054029},
	"B": {75000, 13, 75, 60, 22.712745482631},
	"C": {150000, 15, 75, 110, 28.973605592845},
}

const (
	inner = 25 // iterations of the conjugate gradient method for each system
	group = 50 // rows that one rank has together; it divides the rows of all classes
)

func main() { npb.Main("CG", classes, run) }

func run(world *cohort.Comm, p problem, clock *npb.Clock) (npb.Result, error) {
	s := newSolver(world, p, clock)
	s.reset()
	if _, err := s.step(p.shift); err != nil { // not timed: it touches all memory once
		return npb.Result{}, err
	}
	s.reset()
	if err := clock.Start(world); err != nil {
		return npb.Result{}, err
	}
	zeta := 0.0
	for range p.iterations {
		var err error
		if zeta, err = s.step(p.shift); err != nil {
			return npb.Result{}, err
		}
	}
	clock.Stop()
	row := float64(p.nonzeros * (p.nonzeros + 1))
	return npb.Result{
		Size:       fmt.Sprintf("%d rows", p.rows),
		Iterations: p.iterations,
		Operations: 2 * float64(p.iterations*p.rows) * (3 + row + inner*(5+row) + 3),
		Checks:     []npb.Check{npb.Near("zeta", zeta, p.zeta, 1e-10)},
	}, nil
}

// solver has a rank's rows of the matrix, and its parts of the vectors.
type solver struct {
	world          *cohort.Comm
	clock          *npb.Clock
	a              matrix
	x, z, r, q     []float64
	sums           []float64 // of products, for each group of rows
	p, all         []float64 // p is this rank's part of all, which fills stripes of the matrix
	counts, displs []int     // the ranks' parts of all
}

func newSolver(world *cohort.Comm, p problem, clock *npb.Clock) *solver {
	s := &solver{world: world, clock: clock, all: make([]float64, (p.rows+width-1)/width*width)}
	for rank := range world.Size() {
		lo, hi := cohort.Block((p.rows+group-1)/group, world.Size(), rank)
		s.displs = append(s.displs, min(lo*group, p.rows))
		s.counts = append(s.counts, min(hi*group, p.rows)-s.displs[rank])
	}
	lo, n := s.displs[world.Rank()], s.counts[world.Rank()]
	s.a = makeMatrix(p, lo, lo+n)
	s.p = s.all[lo : lo+n]
	s.sums = make([]float64, (n+group-1)/group)
	s.x, s.z, s.r, s.q = make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
	return s
}

// reset begins with a vector of ones.
func (s *solver) reset() {
	for i := range s.x {
		s.x[i] = 1
	}
}

// step solves A z = x, makes x the unit vector along z, and returns the new estimate of the eigenvalue.
func (s *solver) step(shift float64) (zeta float64, err error) {
	if err = s.solve(); err != nil {
		return 0, err
	}
	xz, err := s.dot(s.x, s.z)
	if err != nil {
		return 0, err
	}
	zz, err := s.dot(s.z, s.z)
	scale := 1 / math.Sqrt(zz)
	for i, z := range s.z {
		s.x[i] = scale * z
	}
	return shift + 1/xz, err
}

// solve improves z = 0 by the conjugate gradient method. The norm of x - A z, which the benchmark computes too, is the
// last step.
func (s *solver) solve() error {
	clear(s.z)
	copy(s.r, s.x)
	copy(s.p, s.x)
	rho, err := s.dot(s.r, s.r)
	for range inner {
		if err == nil {
			err = s.multiply()
		}
		if err != nil {
			return err
		}
		pq, err := s.dot(s.p, s.q)
		if err != nil {
			return err
		}
		alpha, before := rho/pq, rho
		for i := range s.r {
			s.z[i] += alpha * s.p[i]
			s.r[i] -= alpha * s.q[i]
		}
		if rho, err = s.dot(s.r, s.r); err != nil {
			return err
		}
		beta := rho / before
		for i, r := range s.r {
			s.p[i] = r + beta*s.p[i]
		}
	}
	copy(s.p, s.z)
	if err := s.multiply(); err != nil {
		return err
	}
	for i := range s.r {
		s.r[i] = s.x[i] - s.q[i]
	}
	_, err = s.dot(s.r, s.r)
	return err
}

// multiply computes q = A p.
func (s *solver) multiply() error {
	if err := s.gather(); err != nil {
		return err
	}
	s.a.multiply(s.q, s.all)
	return nil
}

// gather collects the ranks' parts of p.
func (s *solver) gather() error {
	defer s.clock.Communication(time.Now())
	return cohort.Allgatherv(s.world, s.all, s.all, s.counts, s.displs)
}

// dot returns the product of two vectors. Groups of rows are added exactly, so that it does not depend on which rank has
// which group.
func (s *solver) dot(x, y []float64) (float64, error) {
	for k := range s.sums {
		sum := 0.0
		for i := k * group; i < min((k+1)*group, len(x)); i++ {
			sum += x[i] * y[i]
		}
		s.sums[k] = sum
	}
	defer s.clock.Communication(time.Now())
	return exact.Sum(s.world, s.sums)
}
