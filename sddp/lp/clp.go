package lp

import (
	"math"

	"github.com/cohort-hpc/cohort/sddp/internal/clp"
)

// Clp is a solver that calls COIN-OR Clp, a library that Open loads. Clp has sparse factors and is meant
// for programs that are too large for the embedded solver.
//
// Every solve creates a new model of the scaled program, so the library's state (factors, weights,
// random numbers, adapted tolerances) cannot influence later answers. Answers of the library are
// checked.
//
// Results cover the columns and rows of the last Solve; an index beyond them panics.
//
// A Clp is not safe for concurrent use, but several may be used at the same time. It holds no memory
// outside Go between two calls.
type Clp struct {
	program
	library *clp.Library

	main   clp.Program // the scaled program
	places []clp.Place // the basis to start from: columns, then rows
	out    clp.Solution

	// For proofs that there is no optimum.
	aux       clp.Program
	auxPlaces []clp.Place
	auxOut    clp.Solution
	point     []float64 // a feasible point

	d, act, size []float64 // scratch: reduced costs; activities of the rows and their largest terms
}

var _ Solver = (*Clp)(nil)

// Tolerances of the library, for the scaled program. Its largest cost is near 1, its smallest may be 1e-8.
const (
	clpPrimalTol = 1e-9
	clpDualTol   = 1e-12
	clpInfinity  = 1e27 // the library ignores bounds from here on
)

// Solve searches for an optimal solution from the current basis. It always ends, because the numbers of
// iterations and calls are bounded. Its error is [ErrMisuse], with the status NumericalFailure and an
// unchanged basis.
//
//  1. Run the dual simplex method from the current basis. The library may switch to the primal method.
//  2. Return an optimum that satisfies the optimality conditions. Some do not: the library treats a free
//     variable as one with bounds of 1e10 and may leave it there if the optimum does not depend on it.
//  3. If the library finds no optimum, search for a proof of infeasibility or unboundedness.
//  4. If there is neither, run the primal method from the final basis, then both from the slack basis.
//  5. If the library finds neither an optimum nor a proof, let the embedded solver try.
func (s *Clp) Solve() (Status, error) {
	if err := s.begin(); err != nil {
		return s.status, err
	}
	if s.loadProgram() {
		s.status = s.attempts()
	}
	if s.unanswered() {
		other := Simplex{program: s.program}
		before := s.iterations
		if err := other.solve(); err != nil {
			return s.status, err
		}
		s.program = other.program
		s.iterations += before
	}
	return s.status, nil
}

// attempts does steps 1 to 4 of Solve.
func (s *Clp) attempts() Status {
	proved := false // step 3 found no proof
	for attempt, method := range [...]clp.Method{clp.Dual, clp.Primal, clp.Dual, clp.Primal} {
		if attempt >= 2 {
			s.ResetBasis()
		}
		s.loadBasis()
		left := s.maxIterations() - s.iterations
		if left <= 0 {
			return IterationLimit
		}
		s.library.Solve(&s.main, s.places, method, left, &s.out)
		s.iterations += s.out.Iterations
		s.storeBasis()
		switch s.out.Status {
		case clp.Optimal:
			if s.checked() {
				return s.storeOptimum()
			}
			continue
		case clp.Stopped:
			return IterationLimit
		}
		if proved {
			continue
		}
		if s.infeasible() {
			return Infeasible
		}
		if s.unbounded() {
			return Unbounded
		}
		proved = true
	}
	return NumericalFailure
}

// loadProgram converts the scaled program to the library's form. It returns false if a number overflows
// or is so large that the library would treat it as infinite.
func (s *Clp) loadProgram() bool {
	p, n, m := &s.main, len(s.cost), len(s.rhs)
	p.PrimalTolerance, p.DualTolerance = clpPrimalTol, clpDualTol
	p.Start, p.Row, p.Value = s.colStart, s.colRow, s.colVal
	p.Cost, p.Lo, p.Hi = resize(p.Cost, n), resize(p.Lo, n), resize(p.Hi, n)
	p.RowLo, p.RowHi = resize(p.RowLo, m), resize(p.RowHi, m)
	s.scaleCosts(p.Cost)
	ok := true
	finite := func(v float64) float64 {
		ok = ok && math.Abs(v) < clpInfinity
		return v
	}
	for j := range n {
		f := pow2(-s.colExp[j])
		p.Lo[j], p.Hi[j] = -clp.Infinity, clp.Infinity
		if !math.IsInf(s.lo[j], -1) {
			p.Lo[j] = finite(s.lo[j] * f)
		}
		if !math.IsInf(s.hi[j], 1) {
			p.Hi[j] = finite(s.hi[j] * f)
		}
		finite(p.Cost[j])
	}
	for i := range m {
		b := finite(s.rhs[i] * pow2(s.rowExp[i]))
		p.RowLo[i], p.RowHi[i] = b, b
		switch s.sense[i] {
		case LE:
			p.RowLo[i] = -clp.Infinity
		case GE:
			p.RowHi[i] = clp.Infinity
		}
	}
	// The library needs at least one row and one column.
	if m == 0 {
		p.RowLo, p.RowHi = append(p.RowLo, -clp.Infinity), append(p.RowHi, clp.Infinity)
	}
	if n == 0 {
		p.Start = []int32{0, 0}
		p.Cost, p.Lo, p.Hi = append(p.Cost, 0), append(p.Lo, 0), append(p.Hi, 0)
	}
	return ok
}

// loadBasis converts the current basis to the library's form, with as many basic variables as rows:
// surplus columns become nonbasic, and missing variables are replaced by slacks. The library repairs a
// singular basis.
func (s *Clp) loadBasis() {
	n, m := len(s.main.Cost), len(s.main.RowLo) // one more if loadProgram added one
	s.places = resize(s.places, n+m)
	missing := m
	for j := range n {
		place := AtLower
		if j < len(s.colPlace) {
			place = s.colPlace[j]
		}
		if place == Basic && missing > 0 {
			s.places[j] = clp.Basic
			missing--
			continue
		}
		if j < len(s.colPlace) {
			place = allowed(place, s.lo[j], s.hi[j])
		}
		s.places[j] = [...]clp.Place{AtLower: clp.AtLower, AtUpper: clp.AtUpper, Free: clp.Free}[place]
	}
	for i := range m {
		if missing > 0 && (i >= len(s.rowPlace) || s.rowPlace[i] == Basic) {
			s.places[n+i] = clp.Basic
			missing--
			continue
		}
		s.places[n+i] = clp.AtLower
		if i < len(s.sense) && s.sense[i] == LE {
			s.places[n+i] = clp.AtUpper // the library uses the activity of a row, not its slack
		}
	}
	for i := 0; missing > 0; i++ {
		if s.places[n+i] != clp.Basic {
			s.places[n+i] = clp.Basic
			missing--
		}
	}
}

// storeBasis stores the final basis of the library.
func (s *Clp) storeBasis() {
	for j := range s.colPlace {
		switch s.out.Places[j] {
		case clp.Basic:
			s.colPlace[j] = Basic
		case clp.AtUpper:
			s.colPlace[j] = allowed(AtUpper, s.lo[j], s.hi[j])
		case clp.Free, clp.Super:
			s.colPlace[j] = allowed(Free, s.lo[j], s.hi[j])
		default:
			s.colPlace[j] = allowed(AtLower, s.lo[j], s.hi[j])
		}
	}
	n := len(s.main.Cost)
	for i := range s.rowPlace {
		switch {
		case s.out.Places[n+i] == clp.Basic:
			s.rowPlace[i] = Basic
		case s.sense[i] == GE:
			s.rowPlace[i] = AtUpper
		default:
			s.rowPlace[i] = AtLower
		}
	}
}
