package lp

import (
	"math"

	"github.com/cohort-hpc/cohort/internal/clp"
)

// Clp is a solver over COIN-OR Clp, a library that Open loads. Its factors are sparse: it is meant
// for programs that are too large for the embedded solver.
//
// Every solve gives the scaled program to a model of its own, so that what the library keeps from
// one solve to the next (factors, weights, random numbers, adapted tolerances) cannot get into an
// answer. What the library answers is checked before it is given.
//
// Results cover the columns and rows there were at the last Solve; asking for others panics.
//
// It is not safe for concurrent use, but any number of them may be used at the same time. It holds
// no memory outside Go between two calls.
type Clp struct {
	program
	library *clp.Library

	main   clp.Program // the scaled program
	places []clp.Place // the basis to start from: columns, then rows
	out    clp.Solution

	// Of proofs that there is no optimum.
	aux       clp.Program
	auxPlaces []clp.Place
	auxOut    clp.Solution
	point     []float64 // satisfies rows and bounds

	d, act, size []float64 // scratch: reduced costs; activities of the rows and their largest terms
}

var _ Solver = (*Clp)(nil)

// Tolerances of the library, which apply to the scaled program. Its largest cost is near 1, and the
// least may be 1e-8 of that.
const (
	clpPrimalTol = 1e-9
	clpDualTol   = 1e-12
	clpInfinity  = 1e27 // bounds from here on are none to the library
)

// Solve looks for an optimal solution, from the basis in place. It always ends: the number of
// iterations and of calls is bounded. The error is for misuse only and comes with
// NumericalFailure; the basis is then unchanged.
//
//  1. The dual simplex method, from the basis in place. The library goes over to the primal one by
//     itself where it cannot go on.
//  2. An optimum that satisfies its conditions is the answer. Some do not: the library takes a
//     variable without bounds for one with bounds of 1e10, and where the optimum does not depend on
//     it may leave it there.
//  3. Where the library finds none, look for a proof that there is none, of infeasibility or of
//     unboundedness.
//  4. Where neither holds, the primal method from where the dual one ended, and then both from the
//     slacks.
func (s *Clp) Solve() (Status, error) {
	if err := s.begin(); err != nil {
		return s.status, err
	}
	if s.loadProgram() {
		s.status = s.attempts()
	}
	return s.status, nil
}

// attempts does steps 1 to 4 of Solve.
func (s *Clp) attempts() Status {
	proved := false // step 3 was done, in vain
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

// loadProgram writes the scaled program in the library's form. It reports false if a number
// overflows or is so large that the library would take it for infinite.
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
	// The library wants a row and a column at least.
	if m == 0 {
		p.RowLo, p.RowHi = append(p.RowLo, -clp.Infinity), append(p.RowHi, clp.Infinity)
	}
	if n == 0 {
		p.Start = []int32{0, 0}
		p.Cost, p.Lo, p.Hi = append(p.Cost, 0), append(p.Lo, 0), append(p.Hi, 0)
	}
	return ok
}

// loadBasis writes the basis in place in the library's form, with as many basic variables as there
// are rows: columns that are too many become nonbasic, and rows get their slack back where there
// are too few. The library repairs a singular one.
func (s *Clp) loadBasis() {
	n, m := len(s.main.Cost), len(s.main.RowLo) // one more where loadProgram has added one
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
			s.places[n+i] = clp.AtUpper // the library's variable of a row is its activity
		}
	}
	for i := 0; missing > 0; i++ {
		if s.places[n+i] != clp.Basic {
			s.places[n+i] = clp.Basic
			missing--
		}
	}
}

// storeBasis takes over the basis the library ended with.
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
