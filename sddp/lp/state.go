package lp

import "math"

// state is the state of the simplex method: a basis and what follows from it. Variables are the
// columns, 0 to n-1, and the slacks of the rows, n to n+m-1; everything is scaled.
type state struct {
	place    []VarStatus
	vlo, vhi []float64 // bounds
	x, d, c  []float64 // values, reduced costs, costs with shifts
	b, y     []float64 // right-hand sides and duals of the rows
	ptol     []float64 // how far a variable may be out of its bounds
	dtol     []float64 // how far a reduced cost may have the wrong sign
	pbase    []float64 // the part of ptol that does not depend on the basis
	dbase    []float64 // the same of dtol
	wt       []float64 // Devex reference weights
	loose    float64   // factor on the tolerances; grows when rounds do not converge
	sound    bool      // the last values and reduced costs satisfy their equations
	singular float64   // pivot, relative to its column, below which a column counts as dependent
	shifted  bool      // c differs from the costs of the program
	slackC   bool      // c differs for slacks as well
	farFrom  float64   // see dual: sign of the row that proves infeasibility
	rayFrom  int       // see primal: variable whose column is the ray, and its direction
	rayDir   float64
	cands    []candidate
	banned   []int32 // entering variables that are rejected even after a fresh factorization
	overflow bool
}

// Tolerances. Those without a unit apply to the scaled program, whose coefficients are near 1 and
// whose largest cost is, and also to the program as given, whichever is tighter: a scale factor
// must not turn a real violation into a small one. Rounding errors are added, which follow from the
// terms of each sum.
const (
	primalTol   = 1e-9  // violation of a bound or row
	primalRel   = 1e-14 // the same, relative to the bound or right-hand side
	dualTol     = 2e-12 // wrong sign of a reduced cost, where the largest cost is 1
	dualUnit    = 1e-9  // the same in the units of the program
	dualRel     = 1e-9  // the same, relative to the column's own cost
	rounding    = 2e-15 // rounding of a sum, relative to its terms
	residue     = 1e-10 // last change of values or duals, relative to them, from which the inverse is blamed
	looseMost   = 100   // most by which tolerances are relaxed
	pivotTol    = 1e-9  // smallest pivot looked at
	pivotNoise  = 1e-14 // entry of a row up to which it counts as zero
	pivotFine   = 1e-7  // smallest pivot taken without a fresh factorization
	zeroStep    = 1e-13 // steps up to this length count as degenerate
	refinements = 6     // steps of refinement at most
	maxUpdates  = 50    // exchanges between factorizations
	maxRounds   = 16    // phases before the result is NumericalFailure
	looseRound  = 6     // round from which tolerances are relaxed
	coldRound   = 9     // round that restarts from the slack basis
)

// load sets the state up from the scaled program and the stored basis.
func (s *Simplex) load() {
	n, m := len(s.cost), len(s.rhs)
	t := n + m
	s.place = resize(s.place, t)
	s.vlo, s.vhi = resize(s.vlo, t), resize(s.vhi, t)
	s.x, s.d, s.c = resize(s.x, t), resize(s.d, t), resize(s.c, t)
	s.ptol, s.dtol, s.wt = resize(s.ptol, t), resize(s.dtol, t), resize(s.wt, t)
	s.pbase, s.dbase = resize(s.pbase, t), resize(s.dbase, t)
	s.b, s.y, s.ws = resize(s.b, m), resize(s.y, m), resize(s.ws, m)
	s.arow, s.cpos, s.rpos = resize(s.arow, n), resize(s.cpos, n), resize(s.rpos, m)
	s.cands, s.banned = s.cands[:0], s.banned[:0]
	s.loose, s.singular, s.overflow = 1, singularLeast, false
	clear(s.x)
	clear(s.d)
	s.restoreCosts()
	for j := range n {
		f := pow2(-s.colExp[j])
		lo, hi := s.lo[j]*f, s.hi[j]*f
		s.vlo[j], s.vhi[j] = lo, hi
		size := math.Inf(1)
		if !math.IsInf(s.lo[j], 0) {
			size = math.Abs(lo)
		}
		if !math.IsInf(s.hi[j], 0) {
			size = min(size, math.Abs(hi))
		}
		s.pbase[j] = primalTol * min(1, f)
		if !math.IsInf(size, 1) {
			s.pbase[j] += primalRel * size
		}
		s.dbase[j] = min(dualTol, dualUnit*pow2(s.colExp[j])*pow2(s.objExp)) + dualRel*math.Abs(s.c[j])
		s.overflow = s.overflow || math.IsInf(lo, 0) != math.IsInf(s.lo[j], 0) ||
			math.IsInf(hi, 0) != math.IsInf(s.hi[j], 0) || s.c[j]-s.c[j] != 0
		s.place[j] = s.colPlace[j]
		if s.place[j] != Basic {
			s.place[j] = allowed(s.place[j], lo, hi)
		}
	}
	for i := range m {
		v := n + i
		f := pow2(s.rowExp[i])
		s.b[i] = s.rhs[i] * f
		s.overflow = s.overflow || s.b[i]-s.b[i] != 0
		s.vlo[v], s.vhi[v] = 0, 0
		switch s.sense[i] {
		case LE:
			s.vhi[v] = Inf
		case GE:
			s.vlo[v] = -Inf
		}
		s.pbase[v] = primalTol*min(1, f) + primalRel*math.Abs(s.b[i])
		s.dbase[v] = min(dualTol, dualUnit/f*pow2(s.objExp))
		s.place[v] = s.rowPlace[i]
		if s.place[v] != Basic {
			s.place[v] = allowed(s.place[v], s.vlo[v], s.vhi[v])
		}
	}
}

// restoreCosts undoes all shifts.
func (s *Simplex) restoreCosts() {
	n := len(s.cost)
	s.scaleCosts(s.c[:n])
	clear(s.c[n:])
	s.shifted, s.slackC = false, false
}

// shift changes the cost of nonbasic variable v so that its reduced cost becomes d.
func (s *Simplex) shift(v int, d float64) {
	s.c[v] += d - s.d[v]
	s.d[v] = d
	s.shifted = true
	s.slackC = s.slackC || v >= len(s.cost)
}

// bound returns the value of a nonbasic variable.
func (s *Simplex) bound(v int) float64 {
	switch s.place[v] {
	case AtLower:
		return s.vlo[v]
	case AtUpper:
		return s.vhi[v]
	}
	return 0
}

// computeX computes the values of all variables from the places, and their tolerances. The basic
// columns are refined with residuals of twice the precision (Wilkinson 1963; Higham 2002, chapter 12),
// so that their error is that of rounding even where rows are nearly parallel, as cuts often are. It
// records whether the refinement converged.
func (s *Simplex) computeX() {
	n := len(s.cost)
	for j := range n {
		s.x[j] = 0
		if s.place[j] != Basic {
			s.x[j] = s.bound(j)
		}
	}
	r := s.rhsR[:s.k]
	s.sound = refine(func() (step, size float64) {
		for q, i := range s.kr {
			r[q], _ = s.slack(int(i))
		}
		for p, j := range s.kc {
			sum := 0.0
			for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
				sum += u * r[q]
			}
			s.x[j] += sum
			step, size = max(step, math.Abs(sum)), max(size, math.Abs(s.x[j]))
		}
		return step, size
	})
	for i := range s.b {
		s.x[n+i], s.ptol[n+i] = 0, 0
		if s.rpos[i] < 0 {
			var size float64
			s.x[n+i], size = s.slack(i)
			s.ptol[n+i] = rounding * size
		}
	}
	for j, x := range s.x[:n] {
		s.ptol[j] = rounding * math.Abs(x)
	}
	for v, base := range s.pbase {
		s.ptol[v] = s.relaxed(base+s.ptol[v], primalTol)
	}
}

// refine calls improve, which returns the size of its last change and of the result, until the change is
// rounding or no longer shrinks. It reports whether the result is sound.
func refine(improve func() (step, size float64)) bool {
	before, _ := improve()
	for range refinements {
		step, size := improve()
		if step <= rounding*size || !(step < before/4) {
			return step <= residue*size
		}
		before = step
	}
	return false
}

// slack returns the right-hand side of a row less its activity, and the sum of the moduli of the terms.
func (s *Simplex) slack(i int) (slack, size float64) {
	from, to := s.rowStart[i], s.rowStart[i+1]
	return rest(s.b[i], s.rowCol[from:to], s.val[from:to], s.x)
}

// relaxed returns a tolerance, looser if rounds do not converge.
func (s *Simplex) relaxed(tol, unit float64) float64 {
	if s.loose > 1 {
		return s.loose * (tol + unit)
	}
	return tol
}

// computeD computes the duals and the reduced costs from c, and their tolerances, with refinement as in
// computeX. It records whether that converged.
func (s *Simplex) computeD() {
	n := len(s.cost)
	clear(s.y)
	if s.slackC {
		for i := range s.y {
			if s.rpos[i] < 0 {
				s.y[i] = s.c[n+i]
			}
		}
	}
	r := s.rhsR[:s.k]
	sound := refine(func() (step, size float64) {
		clear(r)
		for p, j := range s.kc {
			f, _ := s.reducedCost(int(j))
			if f == 0 {
				continue
			}
			for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
				r[q] += f * u
			}
		}
		for q, i := range s.kr {
			s.y[i] += r[q]
			step, size = max(step, math.Abs(r[q])), max(size, math.Abs(s.y[i]))
		}
		return step, size
	})
	s.sound = s.sound && sound
	for j := range n {
		s.d[j], s.dtol[j] = 0, 0
		if s.place[j] != Basic {
			d, size := s.reducedCost(j)
			s.d[j], s.dtol[j] = d, rounding*size
		}
	}
	for i, y := range s.y {
		v := n + i
		s.d[v], s.dtol[v] = 0, 0
		if s.rpos[i] >= 0 {
			s.d[v], s.dtol[v] = s.c[v]-y, rounding*math.Abs(y)
		}
	}
	for v, base := range s.dbase {
		s.dtol[v] = s.relaxed(base+s.dtol[v], dualTol)
	}
}

// reducedCost returns the cost of a column less the duals times its coefficients, and the sum of the
// moduli of the terms.
func (s *Simplex) reducedCost(j int) (d, size float64) {
	from, to := s.colStart[j], s.colStart[j+1]
	return rest(s.c[j], s.colRow[from:to], s.colVal[from:to], s.y)
}

// rest returns b less the products of coefficients with the values that they belong to, and the sum of
// the moduli of the terms.
func rest(b float64, at []int32, coefficients, values []float64) (left, size float64) {
	sum := twofold{hi: b}
	size = math.Abs(b)
	for e, k := range at {
		if v := values[k]; v != 0 {
			size += math.Abs(sum.subtract(coefficients[e], v))
		}
	}
	return sum.hi + sum.lo, size
}

// twofold is an unevaluated sum of two numbers: a sum of products in twice the precision of float64
// (Ogita, Rump and Oishi 2005, algorithm Dot2). The conversions keep the compiler from fusing operations.
type twofold struct{ hi, lo float64 }

// subtract subtracts a*b and returns the rounded product.
func (t *twofold) subtract(a, b float64) float64 {
	p := float64(a * b)
	low := math.FMA(a, b, -p)
	sum := float64(t.hi - p)
	z := float64(sum - t.hi)
	t.lo += float64(float64(t.hi-float64(sum-z))-float64(p+z)) - low
	t.hi = sum
	return p
}

// excess returns by how much basic or nonbasic variable v is out of its bounds, negative below the
// lower one, and zero if by no more than its tolerance.
func (s *Simplex) excess(v int) float64 {
	x, tol := s.x[v], s.ptol[v]
	if e := x - s.vhi[v]; e > tol {
		return e
	}
	if e := x - s.vlo[v]; e < -tol {
		return e
	}
	return 0
}

// wrongSign returns by how much the reduced cost of variable v has the wrong sign for its place,
// and zero if by no more than its tolerance.
func (s *Simplex) wrongSign(v int) float64 {
	d := s.d[v]
	if s.place[v] == Basic || s.vlo[v] == s.vhi[v] ||
		s.place[v] == AtLower && d >= 0 || s.place[v] == AtUpper && d <= 0 {
		return 0
	}
	if d = math.Abs(d); d > s.dtol[v] {
		return d
	}
	return 0
}

// primalFeasible reports whether all variables are within their bounds.
func (s *Simplex) primalFeasible() bool {
	for _, j := range s.kc {
		if s.excess(int(j)) != 0 {
			return false
		}
	}
	n := len(s.cost)
	for i, q := range s.rpos {
		if q < 0 && s.excess(n+i) != 0 {
			return false
		}
	}
	return true
}

// dualFeasible reports whether all reduced costs have the right sign.
func (s *Simplex) dualFeasible() bool {
	for v := range s.d {
		if s.wrongSign(v) != 0 {
			return false
		}
	}
	return true
}

// makeDualFeasible gives every reduced cost the right sign. A variable with two bounds moves to the other
// bound if flip is true; the cost of any other variable is shifted. It reports whether a variable moved.
func (s *Simplex) makeDualFeasible(flip bool) (flipped bool) {
	for v := range s.d {
		if s.wrongSign(v) == 0 {
			continue
		}
		switch {
		case flip && s.place[v] == AtLower && !math.IsInf(s.vhi[v], 1):
			s.place[v], flipped = AtUpper, true
		case flip && s.place[v] == AtUpper && !math.IsInf(s.vlo[v], -1):
			s.place[v], flipped = AtLower, true
		default:
			s.shift(v, 0)
		}
	}
	return flipped
}
