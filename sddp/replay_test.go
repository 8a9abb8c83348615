package sddp

import (
	"context"
	"math"
	"testing"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// rotated returns brazil4 with a number of stages that begin in September, at the end of the dry months.
// Trainings of it have many cuts that are nearly parallel.
func rotated(t *testing.T, stages int) *Case {
	t.Helper()
	c := readShipped(t, "brazil4")
	turn := func(x []float64) []float64 { return append(append([]float64(nil), x[8:]...), x[:8]...) }
	for b := range c.Buses {
		if c.Buses[b].LoadMW != nil {
			c.Buses[b].LoadMW = turn(c.Buses[b].LoadMW)
		}
	}
	for r := range c.Reservoirs {
		c.Reservoirs[r].InflowMean, c.Reservoirs[r].InflowStd = turn(c.Reservoirs[r].InflowMean), turn(c.Reservoirs[r].InflowStd)
	}
	c.Periods = append(append([]string(nil), c.Periods[8:]...), c.Periods[:8]...)
	c.Stages = stages
	return c
}

// replay is a solver that hands programs to Clp too, from the same basis, and compares the optima. It also
// checks that the answer satisfies all rows to the tolerance of the package lp, and cuts to cutTolerance.
type replay struct {
	lp.Solver
	clp    lp.Solver
	t      *testing.T
	every  int // program of which this is one is compared
	count  *int
	rows   []replayRow
	before lp.Basis
}

type replayRow struct {
	sense lp.Sense
	rhs   float64
	cols  []int
	coefs []float64
}

func (s *replay) AddColumn(cost, lo, hi float64) int {
	s.clp.AddColumn(cost, lo, hi)
	return s.Solver.AddColumn(cost, lo, hi)
}

func (s *replay) AddRow(sense lp.Sense, rhs float64, cols []int, coefs []float64) int {
	s.rows = append(s.rows, replayRow{sense, rhs, append([]int(nil), cols...), append([]float64(nil), coefs...)})
	s.clp.AddRow(sense, rhs, cols, coefs)
	return s.Solver.AddRow(sense, rhs, cols, coefs)
}

func (s *replay) SetRHS(row int, rhs float64) {
	s.rows[row].rhs = rhs
	s.clp.SetRHS(row, rhs)
	s.Solver.SetRHS(row, rhs)
}

func (s *replay) Truncate(rows int) {
	s.rows = s.rows[:rows]
	s.clp.Truncate(rows)
	s.Solver.Truncate(rows)
}

func (s *replay) Solve() (lp.Status, error) {
	s.before = s.Solver.Basis(s.before)
	status, err := s.Solver.Solve()
	if *s.count++; err != nil || status != lp.Optimal {
		s.t.Errorf("program %d: %v, %v", *s.count, status, err)
		return status, err
	}
	if s.Iterations() > 1000 {
		s.t.Errorf("program %d: %d iterations for %d rows", *s.count, s.Iterations(), s.Rows())
	}
	for i, r := range s.rows {
		sum, size := -r.rhs, math.Abs(r.rhs)
		for k, col := range r.cols {
			term := r.coefs[k] * s.Value(col)
			sum += term
			size += math.Abs(term)
		}
		if theta := s.Value(r.cols[0]); r.sense == lp.GE && sum < -max(cutTolerance*max(1, theta), sameCut*math.Abs(r.rhs)) {
			s.t.Errorf("program %d: theta is %v, below cut %d by %g", *s.count, theta, i, -sum)
		}
		if tol := 2e-9 + 1e-13*size; r.sense != lp.LE && sum < -tol || r.sense != lp.GE && sum > tol {
			s.t.Errorf("program %d: row %d exceeds its right-hand side by %g, of terms of %g", *s.count, i, sum, size)
		}
	}
	if *s.count%s.every != 0 {
		return status, err
	}
	if err := s.clp.SetBasis(s.before); err != nil {
		s.t.Error(err)
	}
	other, err := s.clp.Solve()
	if a, b := s.Objective(), s.clp.Objective(); err != nil || other != lp.Optimal || !(math.Abs(a-b) <= 1e-9*math.Abs(b)) {
		s.t.Errorf("program %d: objective %.17g, by Clp %.17g (%v, %v)", *s.count, a, b, other, err)
	}
	return status, nil
}

// TestProgramsOfTrainingsEqualClp trains with both solvers at once: every program has an optimum, that of
// Clp, and satisfies its rows. With -short, few iterations, and Clp solves every twentieth program.
func TestProgramsOfTrainingsEqualClp(t *testing.T) {
	clp := solvers(t, lp.CLP)
	iterations, every, seeds, least := 60, 1, []uint64{42, 7}, 40000
	if testing.Short() {
		iterations, every, seeds, least = 8, 20, seeds[:1], 2000
	}
	count := 0
	for _, seed := range seeds {
		c := rotated(t, 4)
		noise, pool := NewNoise(c, seed, 5), newPool(c.Stages, len(c.Reservoirs))
		p, err := newPlanner(c, noise, pool, func() lp.Solver {
			return &replay{Solver: lp.New(), clp: clp(), t: t, every: every, count: &count}
		})
		if err != nil {
			t.Fatal(err)
		}
		const passes = 8
		trials, cut := make([][][]float64, passes), make([]float64, 1+len(c.Reservoirs))
		for it := range iterations {
			for m := range passes {
				trials[m] = trials[m][:0]
				_, err := p.forward(context.Background(), func(s int) []float64 { return noise.Inflow(s, noise.forward(it, m, s)) }, func(s *stage) {
					trials[m] = append(trials[m], append([]float64(nil), s.end(c)...))
				})
				if err != nil {
					t.Fatalf("seed %d, iteration %d: %v", seed, it+1, err)
				}
			}
			for s := c.Stages - 2; s >= 0; s-- {
				var cuts []float64
				for m := range passes {
					if err := p.backward(context.Background(), s, trials[m][s], cut); err != nil {
						t.Fatalf("seed %d, iteration %d: %v", seed, it+1, err)
					}
					cuts = append(cuts, cut...)
				}
				pool.add(s, cuts)
			}
		}
	}
	t.Logf("%d programs", count)
	if count < least {
		t.Errorf("%d programs, want at least %d: the test shows too little", count, least)
	}
}
