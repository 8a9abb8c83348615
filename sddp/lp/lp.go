// Package lp solves small linear programs over and over again.
//
// A [Solver] minimizes c'x subject to rows a'x <= b, a'x = b or a'x >= b and to bounds
// lo <= x <= hi. It is designed for programs that change a little between two solves: new right-hand
// sides, bounds or costs, and rows (the cuts of a decomposition) that are added at the end and dropped
// again. Each solve starts from the current basis, normally the final basis of the last solve.
//
// [Open] returns one of two solvers. [Simplex], also returned by [New], is embedded: a
// bounded-variable dual simplex method in float64, with a primal simplex phase for programs from which
// the dual method cannot start. It is faster up to about a hundred rows and usable up to a few hundred.
// [Clp] calls COIN-OR Clp, a library that is loaded at run time.
//
// # Same input, same bits
//
// The results of Solve (status, primal values, duals, basis) are a function of the program and of the
// basis it starts from, bit for bit on one architecture. They do not depend on earlier solves: factors,
// pricing weights and scale factors are computed anew, and nothing is random, timed, or read from a map.
// They do depend on the solver, and on the version of a library.
//
// # Aliasing
//
// A solver copies the slices it is given before the call returns. Basis returns a copy.
//
// # Signs
//
// Dual(i) is the derivative of the optimal objective with respect to the right-hand side of row i:
// at most zero for a <= row, at least zero for a >= row. ReducedCost(j) is c_j - sum_i Dual(i)*a_ij:
// at least zero for a column at its lower bound, at most zero at its upper bound, zero for a basic
// one.
package lp

import "math"

// Sense is the relation between a row's activity and its right-hand side.
type Sense int8

// The senses of a row.
const (
	LE Sense = iota // a'x <= rhs
	EQ              // a'x = rhs
	GE              // a'x >= rhs
)

// String returns the symbol of the relation.
func (s Sense) String() string {
	switch s {
	case LE:
		return "<="
	case EQ:
		return "="
	case GE:
		return ">="
	}
	return "invalid sense"
}

// Status is the outcome of a solve.
type Status int8

// The outcomes of a solve.
const (
	Optimal          Status = iota // primal and dual feasible
	Infeasible                     // no point satisfies the rows and the bounds
	Unbounded                      // feasible, and the objective falls without limit
	IterationLimit                 // stopped before an answer
	NumericalFailure               // rounding errors prevent a reliable answer
)

// String returns the outcome in words.
func (s Status) String() string {
	switch s {
	case Optimal:
		return "optimal"
	case Infeasible:
		return "infeasible"
	case Unbounded:
		return "unbounded"
	case IterationLimit:
		return "iteration limit"
	case NumericalFailure:
		return "numerical failure"
	}
	return "invalid status"
}

// VarStatus is the place of a variable in a basis. The variable of a row is its slack,
// rhs - a'x: at least zero for a <= row, at most zero for a >= row, zero for an = row.
type VarStatus int8

// The places of a variable.
const (
	AtLower VarStatus = iota // nonbasic at its lower bound
	AtUpper                  // nonbasic at its upper bound
	Free                     // nonbasic at zero, without bounds
	Basic                    // determined by the rows
)

// String returns the place in words.
func (v VarStatus) String() string {
	switch v {
	case AtLower:
		return "at lower"
	case AtUpper:
		return "at upper"
	case Free:
		return "free"
	case Basic:
		return "basic"
	}
	return "invalid place"
}

// Basis holds the place of every column and of every row's slack.
type Basis struct {
	Cols []VarStatus
	Rows []VarStatus
}

// Inf as an upper bound means none, and -Inf as a lower bound.
var Inf = math.Inf(1)

// Solver minimizes c'x subject to its rows and lo <= x <= hi.
//
// A Solver is not safe for concurrent use. Misuse (NaN, an infinite cost, coefficient or
// right-hand side, lo > hi, an index out of range) does not panic: the next Solve returns it as
// an error.
type Solver interface {
	// AddColumn adds a column and returns its index. A row can use only columns added before it.
	AddColumn(cost, lo, hi float64) int
	// AddRow adds a row with the given coefficients and returns its index. Coefficients of a
	// column named twice add up. Rows may be added after a solve; their slacks are then basic.
	AddRow(sense Sense, rhs float64, cols []int, coefs []float64) int
	// SetRHS changes the right-hand side of a row.
	SetRHS(row int, rhs float64)
	// SetBounds changes the bounds of a column.
	SetBounds(col int, lo, hi float64)
	// SetCost changes the cost of a column.
	SetCost(col int, cost float64)
	// Columns returns the number of columns.
	Columns() int
	// Rows returns the number of rows.
	Rows() int
	// Basis returns a copy of the current basis, from which the next Solve starts, in the memory of
	// dst if that is large enough.
	Basis(dst Basis) Basis
	// SetBasis makes the next Solve start from a copy of b. Slacks of rows beyond the end of b become
	// basic. A basis may be singular, have too many or too few basic variables, or place a variable on
	// a bound that it does not have: the next Solve repairs it, always in the same way.
	SetBasis(b Basis) error
	// ResetBasis makes all slacks basic. It places every column at the finite bound that its cost
	// favors, otherwise at the one nearest zero.
	ResetBasis()
	// Truncate drops the rows from index rows on. The other variables keep their places, which the
	// next Solve repairs as for SetBasis.
	Truncate(rows int)
	// Solve searches for an optimal solution. Its error is ErrMisuse.
	Solve() (Status, error)
	// Objective returns the objective after a Solve that found an optimum.
	Objective() float64
	// Value returns the value of a column after a Solve that found an optimum.
	Value(col int) float64
	// Dual returns the derivative of the objective with respect to the row's right-hand side
	// after a Solve that found an optimum.
	Dual(row int) float64
	// ReducedCost returns cost minus the row duals times the column after a Solve that found an
	// optimum.
	ReducedCost(col int) float64
	// Farkas returns the multiplier of a row in the proof of infeasibility after a Solve that
	// returned Infeasible: the multipliers y are at most zero for <= rows, at least zero for >=
	// rows, and y'b exceeds the largest y'Ax over lo <= x <= hi.
	Farkas(row int) float64
	// Ray returns the entry of a column in the proof of unboundedness after a Solve that returned
	// Unbounded: a direction that keeps all rows and bounds from every feasible point and lowers
	// the objective. Value is then a feasible point.
	Ray(col int) float64
	// SetIterationLimit makes Solve give up after n iterations; 0 restores the default, which
	// grows with the program.
	SetIterationLimit(n int)
	// Iterations returns the number of simplex iterations of the last Solve.
	Iterations() int
}
