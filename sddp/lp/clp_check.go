package lp

import "math"

// wide is the factor on the embedded solver's tolerances for answers of the library.
const wide = 10

// checked reports whether the library's optimum satisfies the optimality conditions: every variable is
// within its bounds, every nonbasic one at the bound of its place, every dual and reduced cost has the
// right sign. Tolerances apply in the scaled and the given units, whichever is tighter, and are relative
// to the terms of each sum. It moves nonbasic variables exactly to their bounds and stores the reduced
// costs in d.
func (s *Clp) checked() bool {
	p, x, y, unit := &s.main, s.out.X, s.out.Y, pow2(s.objExp)
	s.d = resize(s.d, len(s.cost))
	for j := range s.cost {
		f := pow2(-s.colExp[j])
		place, lo, hi := s.colPlace[j], p.Lo[j], p.Hi[j]
		at := x[j]
		switch place {
		case AtLower:
			at = lo
		case AtUpper:
			at = hi
		case Free:
			at = 0
		}
		tol := wide * (primalTol*min(1, f) + primalRel*math.Abs(at))
		if !(math.Abs(x[j]-at) <= tol && at >= lo-tol && at <= hi+tol) {
			return false
		}
		x[j] = at
		d, size := p.Cost[j], math.Abs(p.Cost[j])
		for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
			t := s.colVal[e] * y[s.colRow[e]]
			d -= t
			size = max(size, math.Abs(t))
		}
		tol = wide * (min(primalTol, dualUnit/f*unit) + dualRel*size)
		if lo != hi && (place != AtUpper && !(d >= -tol) || place != AtLower && !(d <= tol)) {
			return false
		}
		if s.d[j] = d; place == Basic {
			s.d[j] = 0
		}
	}
	s.activities(x)
	for i, b := range s.rhs {
		f := pow2(s.rowExp[i])
		b *= f
		basic, slack := s.rowPlace[i] == Basic, b-s.act[i]
		tol := wide * (primalTol*min(1, f) + primalTol*max(s.size[i], math.Abs(b)))
		if (s.sense[i] != GE || !basic) && !(slack >= -tol) || (s.sense[i] != LE || !basic) && !(slack <= tol) {
			return false
		}
		tol = wide * min(primalTol, dualUnit/f*unit)
		if (s.sense[i] == LE || basic) && !(y[i] <= tol) || (s.sense[i] == GE || basic) && !(y[i] >= -tol) {
			return false
		}
	}
	return true
}

// activities computes the activity of every row at x, and the largest modulus of its terms.
func (s *Clp) activities(x []float64) {
	s.act, s.size = resize(s.act, len(s.rhs)), resize(s.size, len(s.rhs))
	clear(s.act)
	clear(s.size)
	for j := range s.cost {
		for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
			i, t := s.colRow[e], s.colVal[e]*x[j]
			s.act[i] += t
			s.size[i] = max(s.size[i], math.Abs(t))
		}
	}
}

// storeOptimum stores the checked optimum.
func (s *Clp) storeOptimum() Status {
	objective, finite := s.store(s.out.X, s.d, s.out.Y)
	if !finite {
		return NumericalFailure
	}
	s.objective = objective
	return Optimal
}
