package lp

import (
	"errors"
	"fmt"
	"math"
)

// ErrMisuse is wrapped by every error of Open, Solve and SetBasis.
var ErrMisuse = errors.New("lp: misuse")

// program is the state that both solvers have: the given program, the basis from which the next solve
// starts, the scaled program, and the result of the last solve.
//
// Results cover the columns and rows of the last Solve; an index beyond them panics.
type program struct {
	cost, lo, hi []float64
	sense        []Sense
	rhs          []float64
	rowStart     []int32 // row i owns entries rowStart[i] to rowStart[i+1]
	rowCol       []int32
	rowVal       []float64

	colPlace, rowPlace []VarStatus

	misuse  error // first wrong index since the last Solve, reported once
	badRow  int   // first invalid row, or -1
	badErr  error // its error
	limit   int   // iteration limit, 0 for the default
	changed bool  // the matrix has changed since it was scaled

	scaled
	result
}

// result is the outcome of the last solve, in the units of the program.
type result struct {
	status     Status
	iterations int
	objective  float64
	value      []float64
	reduced    []float64
	dual       []float64
	farkas     []float64
	ray        []float64
}

// newProgram returns a program without columns and rows.
func newProgram() program {
	return program{badRow: -1, changed: true, rowStart: []int32{0}, result: result{objective: math.NaN()}}
}

// AddColumn adds a column and returns its index. It starts nonbasic, at the bound ResetBasis
// would choose.
func (s *program) AddColumn(cost, lo, hi float64) int {
	s.cost = append(s.cost, cost)
	s.lo = append(s.lo, lo)
	s.hi = append(s.hi, hi)
	s.colPlace = append(s.colPlace, preferred(cost, lo, hi))
	s.mark = append(s.mark, 0)
	s.changed = true
	return len(s.cost) - 1
}

// AddRow adds a row with a basic slack and returns its index. Coefficients of a column named twice
// add up.
func (s *program) AddRow(sense Sense, rhs float64, cols []int, coefs []float64) int {
	row := len(s.rhs)
	s.sense = append(s.sense, sense)
	s.rhs = append(s.rhs, rhs)
	s.rowPlace = append(s.rowPlace, Basic)
	s.changed = true
	if len(cols) != len(coefs) {
		s.reject(row, fmt.Errorf("%w: add row %d: got %d coefficients for %d columns", ErrMisuse, row, len(coefs), len(cols)))
		cols = nil
	}
	if sense < LE || sense > GE {
		s.reject(row, fmt.Errorf("%w: add row %d: got sense %d", ErrMisuse, row, sense))
	}
	first := len(s.rowCol)
	for k, j := range cols {
		if j < 0 || j >= len(s.cost) {
			s.reject(row, fmt.Errorf("%w: add row %d: got column %d of %d", ErrMisuse, row, j, len(s.cost)))
			continue
		}
		if at := s.mark[j]; at != 0 {
			s.rowVal[at-1] += coefs[k]
			continue
		}
		s.rowCol = append(s.rowCol, int32(j))
		s.rowVal = append(s.rowVal, coefs[k])
		s.mark[j] = int32(len(s.rowCol))
	}
	// Zeros are dropped, because scaling uses the exponents of all entries.
	keep := first
	for k := first; k < len(s.rowCol); k++ {
		s.mark[s.rowCol[k]] = 0
		if s.rowVal[k] != 0 {
			s.rowCol[keep], s.rowVal[keep] = s.rowCol[k], s.rowVal[k]
			keep++
		}
	}
	s.rowCol, s.rowVal = s.rowCol[:keep], s.rowVal[:keep]
	s.rowStart = append(s.rowStart, int32(keep))
	return row
}

// reject records that a row is invalid.
func (s *program) reject(row int, err error) {
	if s.badRow < 0 {
		s.badRow, s.badErr = row, err
	}
}

// outside reports whether index k is outside [0, n), and then records the misuse.
func (s *program) outside(op string, k, n int) bool {
	if k >= 0 && k < n {
		return false
	}
	if s.misuse == nil {
		s.misuse = fmt.Errorf("%w: %s: got index %d of %d", ErrMisuse, op, k, n)
	}
	return true
}

// SetRHS changes the right-hand side of a row.
func (s *program) SetRHS(row int, rhs float64) {
	if !s.outside("set rhs", row, len(s.rhs)) {
		s.rhs[row] = rhs
	}
}

// SetBounds changes the bounds of a column.
func (s *program) SetBounds(col int, lo, hi float64) {
	if !s.outside("set bounds", col, len(s.cost)) {
		s.lo[col], s.hi[col] = lo, hi
	}
}

// SetCost changes the cost of a column.
func (s *program) SetCost(col int, cost float64) {
	if !s.outside("set cost", col, len(s.cost)) {
		s.cost[col] = cost
	}
}

// SetIterationLimit makes Solve give up after n iterations; 0 restores the default, which grows
// with the program.
func (s *program) SetIterationLimit(n int) { s.limit = max(n, 0) }

// Truncate drops the rows from index rows on. The other variables keep their places, which the next Solve
// repairs as for SetBasis.
func (s *program) Truncate(rows int) {
	if rows == len(s.rhs) || s.outside("truncate", rows, len(s.rhs)) {
		return
	}
	s.sense, s.rhs, s.rowPlace = s.sense[:rows], s.rhs[:rows], s.rowPlace[:rows]
	s.rowStart = s.rowStart[:rows+1]
	s.rowCol, s.rowVal = s.rowCol[:s.rowStart[rows]], s.rowVal[:s.rowStart[rows]]
	if s.badRow >= rows {
		s.badRow, s.badErr = -1, nil
	}
	s.changed = true
}

// Columns returns the number of columns.
func (s *program) Columns() int { return len(s.cost) }

// Rows returns the number of rows.
func (s *program) Rows() int { return len(s.rhs) }

// Objective returns the objective after a Solve that found an optimum, otherwise NaN.
func (s *program) Objective() float64 { return s.objective }

// Value returns the value of a column after a Solve that found an optimum, otherwise its value in the
// last basis.
func (s *program) Value(col int) float64 { return s.value[col] }

// Dual returns the derivative of the objective with respect to the row's right-hand side after a
// Solve that found an optimum.
func (s *program) Dual(row int) float64 { return s.dual[row] }

// ReducedCost returns cost minus the row duals times the column after a Solve that found an
// optimum.
func (s *program) ReducedCost(col int) float64 { return s.reduced[col] }

// Iterations returns the number of simplex iterations of the last Solve.
func (s *program) Iterations() int { return s.iterations }

// Farkas returns the multiplier of a row in the proof of infeasibility, after a Solve that
// returned Infeasible: the multipliers y are at most zero for <= rows, at least zero for >= rows,
// and y'b exceeds the largest y'Ax over lo <= x <= hi.
func (s *program) Farkas(row int) float64 { return s.farkas[row] }

// Ray returns the entry of a column in the proof of unboundedness, after a Solve that returned
// Unbounded: a direction that keeps all rows and bounds from every feasible point and lowers the
// objective.
func (s *program) Ray(col int) float64 { return s.ray[col] }

// unanswered reports whether the last solve found neither an optimum nor a proof that there is none, and was not
// stopped by a limit of the caller.
func (s *program) unanswered() bool {
	return s.status == NumericalFailure || s.status == IterationLimit && s.limit == 0
}

// maxIterations returns the iteration limit in force.
func (s *program) maxIterations() int {
	if s.limit > 0 {
		return s.limit
	}
	return 5000 + 50*(len(s.cost)+len(s.rhs))
}

// begin clears the outcome of the last solve, validates the program and scales it.
func (s *program) begin() error {
	s.iterations = 0
	s.objective = math.NaN()
	s.status = NumericalFailure
	n, m := len(s.cost), len(s.rhs)
	s.value, s.reduced = resize(s.value, n), resize(s.reduced, n)
	s.dual, s.farkas, s.ray = resize(s.dual, m), resize(s.farkas, m), resize(s.ray, n)
	for _, v := range [...][]float64{s.value, s.reduced, s.dual, s.farkas, s.ray} {
		clear(v)
	}
	if err := s.validate(); err != nil {
		return err
	}
	if s.changed {
		s.rescale()
	}
	return nil
}
