package clp

import (
	"math"

	"github.com/cohort-hpc/cohort/internal/view"
)

// Place is the place of a variable in a basis, with the library's numbers. The variable of a row is its
// activity.
type Place uint8

// The places. Super is nonbasic between its bounds.
const (
	Free Place = iota
	Basic
	AtUpper
	AtLower
	Super
	Fixed
)

// Status is the result of a solve, with the library's numbers.
type Status int32

// The results of a solve. Infeasibility is only up to the tolerances of the library.
const (
	Optimal Status = iota
	PrimalInfeasible
	DualInfeasible
	Stopped // at the iteration limit
	Failed  // for numerical reasons
)

// Method is a simplex method.
type Method uint8

// The methods.
const (
	Dual Method = iota
	Primal
)

// Program is: minimize cost'x with RowLo <= Ax <= RowHi and Lo <= x <= Hi. The library ignores bounds above
// 1e27 in modulus. There must be at least one column and one row.
type Program struct {
	Start           []int32 // column j has entries Start[j] to Start[j+1]
	Row             []int32
	Value           []float64
	Cost, Lo, Hi    []float64
	RowLo, RowHi    []float64
	PrimalTolerance float64
	DualTolerance   float64
}

// Infinity as an upper bound means none, and -Infinity as a lower bound.
const Infinity = math.MaxFloat64

// Solution is the result of a solve.
type Solution struct {
	Status     Status
	Iterations int
	Places     []Place   // of the columns, then of the rows
	X, D       []float64 // values and reduced costs of the columns
	Y          []float64 // duals of the rows: derivatives of the optimum by their bounds
}

// Solve solves p by a method from the basis places, which holds the columns and then the rows, in at most
// limit iterations. It stores the result in s, whose memory it reuses.
//
// Every call creates a model, so the result is a function of the arguments. The library does not scale the
// program. Its function initialSolve is not used, because it takes over SIGINT.
func (l *Library) Solve(p *Program, places []Place, method Method, limit int, s *Solution) {
	m := l.newModel()
	defer l.delete(m)
	l.logLevel(m, 0)
	l.scaling(m, 0)
	l.primalTol(m, p.PrimalTolerance)
	l.dualTol(m, p.DualTolerance)
	l.maximum(m, int32(min(limit, math.MaxInt32)))
	l.load(m, int32(len(p.Cost)), int32(len(p.RowLo)), p.Start, p.Row, p.Value, p.Lo, p.Hi, p.Cost, p.RowLo, p.RowHi)
	l.setPlaces(m, places)
	if method == Dual {
		l.dual(m, 0)
	} else {
		l.primal(m, 0)
	}
	s.Status = Status(l.status(m))
	s.Iterations = int(l.count(m))
	// SAFETY: the arrays belong to the model, which lives until this function returns.
	n := len(p.Cost)
	s.Places = append(s.Places[:0], view.C(l.places(m), len(places))...)
	s.X = append(s.X[:0], view.C(l.values(m), n)...)
	s.D = append(s.D[:0], view.C(l.reduced(m), n)...)
	s.Y = append(s.Y[:0], view.C(l.duals(m), len(p.RowLo))...)
}
