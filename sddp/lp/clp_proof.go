package lp

import (
	"math"

	"github.com/cohort-hpc/cohort/sddp/internal/clp"
)

// The library reports that a program has no optimum without a proof to a known tolerance. The proof
// therefore comes from a second program that has an optimum, which Clp finds and the code below checks.
// It starts from the final basis of the first program, so it too is a function of the program and the
// starting basis.

// proofTol is the rounding error allowed in a proof, relative to the terms of a sum.
const proofTol = 1e-9

// copyAux copies the program to that of the proof.
func (s *Clp) copyAux() {
	p, q := &s.main, &s.aux
	q.PrimalTolerance, q.DualTolerance = p.PrimalTolerance, p.DualTolerance
	q.Start, q.Row = append(q.Start[:0], p.Start...), append(q.Row[:0], p.Row...)
	for _, v := range [...]struct {
		to   *[]float64
		from []float64
	}{{&q.Value, p.Value}, {&q.Cost, p.Cost}, {&q.Lo, p.Lo}, {&q.Hi, p.Hi}, {&q.RowLo, p.RowLo}, {&q.RowHi, p.RowHi}} {
		*v.to = append((*v.to)[:0], v.from...)
	}
}

// solveAux solves the program of a proof and reports whether it has an optimum.
func (s *Clp) solveAux(method clp.Method) bool {
	s.library.Solve(&s.aux, s.auxPlaces, method, s.maxIterations(), &s.auxOut)
	s.iterations += s.auxOut.Iterations
	return s.auxOut.Status == clp.Optimal
}

// infeasible searches for a proof that no point satisfies rows and bounds, and stores it in farkas. It
// minimizes the sum of the violations of the rows, which always has an optimum. Without other costs the
// dual method can start from any basis. If the sum is not zero, the duals are the multipliers of the
// proof. If it is zero, infeasible stores the point in point.
func (s *Clp) infeasible() bool {
	s.copyAux()
	q, n := &s.aux, len(s.aux.Cost)
	clear(q.Cost)
	s.auxPlaces = append(s.auxPlaces[:0], s.out.Places[:n]...)
	for i := range q.RowLo {
		for _, side := range [...]struct{ bound, sign float64 }{{q.RowLo[i], 1}, {q.RowHi[i], -1}} {
			if math.Abs(side.bound) == clp.Infinity {
				continue
			}
			q.Row, q.Value = append(q.Row, int32(i)), append(q.Value, side.sign)
			q.Start = append(q.Start, int32(len(q.Row)))
			q.Lo, q.Hi, q.Cost = append(q.Lo, 0), append(q.Hi, clp.Infinity), append(q.Cost, 1)
			s.auxPlaces = append(s.auxPlaces, clp.AtLower)
		}
	}
	s.auxPlaces = append(s.auxPlaces, s.out.Places[n:]...)
	s.point = s.point[:0]
	if !s.solveAux(clp.Dual) {
		return false
	}
	y := s.auxOut.Y
	for i := range s.rhs {
		if s.sense[i] == LE && y[i] > 0 || s.sense[i] == GE && y[i] < 0 {
			y[i] = 0 // rounding
		}
	}
	if !s.separates(y) {
		s.point = append(s.point, s.auxOut.X[:n]...)
		return false
	}
	for i := range s.rhs {
		s.farkas[i] = y[i] * pow2(s.rowExp[i])
	}
	return true
}

// separates reports whether y'b exceeds the largest y'Ax within the bounds by more than rounding.
func (s *Clp) separates(y []float64) bool {
	most, gap, size := 0.0, 0.0, 0.0
	add := func(t float64) {
		gap += t
		size = max(size, math.Abs(t))
	}
	for i, b := range s.rhs {
		most = max(most, math.Abs(y[i]))
		add(y[i] * b * pow2(s.rowExp[i]))
	}
	for j := range s.cost {
		sum, coef := 0.0, 0.0
		for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
			sum += y[s.colRow[e]] * s.colVal[e]
			coef = max(coef, math.Abs(s.colVal[e]))
		}
		switch {
		case math.Abs(sum) <= proofTol*most*coef:
		case sum > 0:
			add(-sum * s.main.Hi[j])
		default:
			add(-sum * s.main.Lo[j])
		}
	}
	return gap > proofTol*size
}

// unbounded searches for a proof that the objective falls without limit, and stores it in value and ray.
// The ray starts at the point that infeasible stored. Its direction is the best one, of length at most 1 in
// each column, that keeps all rows and bounds.
func (s *Clp) unbounded() bool {
	if len(s.point) == 0 || !s.satisfies(&s.main, s.point) {
		return false
	}
	s.copyAux()
	q, n, m := &s.aux, len(s.aux.Cost), len(s.aux.RowLo)
	s.auxPlaces = resize(s.auxPlaces, n+m)
	for j := range n {
		below, above := q.Lo[j] == -clp.Infinity, q.Hi[j] == clp.Infinity
		q.Lo[j], q.Hi[j] = 0, 0
		if below {
			q.Lo[j] = -1
		}
		if above {
			q.Hi[j] = 1
		}
		s.auxPlaces[j] = clp.AtLower
		if q.Cost[j] < 0 {
			s.auxPlaces[j] = clp.AtUpper
		}
	}
	for i := range m {
		for _, bound := range [...]*float64{&q.RowLo[i], &q.RowHi[i]} {
			if math.Abs(*bound) != clp.Infinity {
				*bound = 0
			}
		}
		s.auxPlaces[n+i] = clp.Basic
	}
	if !s.solveAux(clp.Dual) || !s.satisfies(q, s.auxOut.X) {
		return false
	}
	slope := 0.0
	for j, r := range s.auxOut.X {
		slope += s.main.Cost[j] * r
	}
	if !(slope < -proofTol) {
		return false
	}
	for j := range s.cost {
		f := pow2(s.colExp[j])
		s.value[j], s.ray[j] = s.point[j]*f, s.auxOut.X[j]*f
	}
	return true
}

// satisfies reports whether x satisfies the rows and bounds of p, whose matrix is the program's.
func (s *Clp) satisfies(p *clp.Program, x []float64) bool {
	for j := range s.cost {
		tol := wide * primalTol * (1 + math.Abs(x[j]))
		if !(x[j] >= p.Lo[j]-tol && x[j] <= p.Hi[j]+tol) {
			return false
		}
	}
	s.activities(x)
	for i, a := range s.act {
		tol := wide * primalTol * (1 + s.size[i])
		if !(a >= p.RowLo[i]-tol && a <= p.RowHi[i]+tol) {
			return false
		}
	}
	return true
}
