package lp

import "math"

// state is where the simplex method stands: a basis and what follows from it. Variables are the
// columns, 0 to n-1, and the slacks of the rows, n to n+m-1; everything is scaled.
type state struct {
	place    []VarStatus
	vlo, vhi []float64 // bounds
	x, d, c  []float64 // values, reduced costs, costs with shifts
	b, y     []float64 // right-hand sides and duals of the rows
	ptol     []float64 // how far a variable may be out of its bounds
	dtol     []float64 // how far a reduced cost may have the wrong sign
	wt       []float64 // Devex reference weights
	floor    float64   // added to ptol: what rounding does at the size of the values in play
	loose    float64   // factor on the tolerances, grows when rounds do not settle
	shifted  bool      // c differs from the costs of the program
	slackC   bool      // c differs for slacks as well
	farFrom  float64   // see dual: sign of the row that proves infeasibility
	rayFrom  int       // see primal: variable whose column is the ray, and its direction
	rayDir   float64
	cands    []candidate
	banned   []int32 // entering variables that a fresh factorisation advises against
	overflow bool
}

// Tolerances, on the scaled program, whose coefficients are near 1 and whose largest cost is.
const (
	primalTol   = 1e-9  // absolute part of ptol
	primalRel   = 1e-12 // relative to the bound
	primalFloor = 1e-13 // relative to the largest value in play
	dualTol     = 2e-12 // absolute part of dtol: relative to the largest cost
	dualRel     = 1e-9  // relative to the column's own cost
	looseMost   = 100   // most by which tolerances are relaxed
	pivotTol    = 1e-9  // smallest pivot looked at
	pivotFine   = 1e-7  // smallest pivot taken without a fresh factorisation
	zeroStep    = 1e-13 // steps up to this length count as degenerate
	maxUpdates  = 50    // exchanges between factorisations
	maxRounds   = 16    // phases until the arithmetic is given up
	looseRound  = 6     // round from which tolerances are relaxed
)

// load sets the state up from the scaled program and the stored basis.
func (s *Simplex) load() {
	n, m := len(s.cost), len(s.rhs)
	t := n + m
	s.place = resize(s.place, t)
	s.vlo, s.vhi = resize(s.vlo, t), resize(s.vhi, t)
	s.x, s.d, s.c = resize(s.x, t), resize(s.d, t), resize(s.c, t)
	s.ptol, s.dtol, s.wt = resize(s.ptol, t), resize(s.dtol, t), resize(s.wt, t)
	s.b, s.y, s.ws = resize(s.b, m), resize(s.y, m), resize(s.ws, m)
	s.arow, s.cpos, s.rpos = resize(s.arow, n), resize(s.cpos, n), resize(s.rpos, m)
	s.cands, s.banned = s.cands[:0], s.banned[:0]
	s.loose, s.floor, s.overflow = 1, 0, false
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
		s.ptol[j] = primalTol
		if !math.IsInf(size, 1) {
			s.ptol[j] += primalRel * size
		}
		s.dtol[j] = dualTol + dualRel*math.Abs(s.c[j])
		s.overflow = s.overflow || math.IsInf(lo, 0) != math.IsInf(s.lo[j], 0) ||
			math.IsInf(hi, 0) != math.IsInf(s.hi[j], 0) || s.c[j]-s.c[j] != 0
		s.place[j] = s.colPlace[j]
		if s.place[j] != Basic {
			s.place[j] = allowed(s.place[j], lo, hi)
		}
	}
	for i := range m {
		v := n + i
		s.b[i] = s.rhs[i] * pow2(s.rowExp[i])
		s.overflow = s.overflow || s.b[i]-s.b[i] != 0
		s.vlo[v], s.vhi[v] = 0, 0
		switch s.sense[i] {
		case LE:
			s.vhi[v] = Inf
		case GE:
			s.vlo[v] = -Inf
		}
		s.ptol[v] = primalTol + primalRel*math.Abs(s.b[i])
		s.dtol[v] = dualTol
		s.place[v] = s.rowPlace[i]
		if s.place[v] != Basic {
			s.place[v] = allowed(s.place[v], s.vlo[v], s.vhi[v])
		}
	}
}

// restoreCosts takes all shifts back.
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

// rowTimesX returns the activity of row i at x.
func (s *Simplex) rowTimesX(i int) float64 {
	sum := 0.0
	for e := s.rowStart[i]; e < s.rowStart[i+1]; e++ {
		sum += s.val[e] * s.x[s.rowCol[e]]
	}
	return sum
}

// computeX computes the values of all variables from the places, with one step of iterative
// refinement, and the rounding floor.
func (s *Simplex) computeX() {
	n := len(s.cost)
	for j := range n {
		s.x[j] = 0
		if s.place[j] != Basic {
			s.x[j] = s.bound(j)
		}
	}
	size := 0.0
	r := s.rhsR[:s.k]
	for range 2 {
		for q, i := range s.kr {
			r[q] = s.b[i] - s.rowTimesX(int(i))
			size = max(size, math.Abs(r[q]))
		}
		for p, j := range s.kc {
			sum := 0.0
			for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
				sum += u * r[q]
			}
			s.x[j] += sum
			size = max(size, math.Abs(s.x[j]))
		}
	}
	for i := range s.rhs {
		s.x[n+i] = 0
		if s.rpos[i] < 0 {
			s.x[n+i] = s.b[i] - s.rowTimesX(i)
		}
	}
	s.floor = primalFloor * size
}

// computeD computes the duals and the reduced costs from c, with one step of iterative refinement.
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
	d := s.d[:n]
	r := s.rhsR[:s.k]
	for pass := range 3 {
		copy(d, s.c[:n])
		for i, y := range s.y {
			if y == 0 {
				continue
			}
			for e := s.rowStart[i]; e < s.rowStart[i+1]; e++ {
				d[s.rowCol[e]] -= y * s.val[e]
			}
		}
		if pass == 2 {
			break
		}
		clear(r)
		for p, j := range s.kc {
			f := d[j]
			if f == 0 {
				continue
			}
			for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
				r[q] += f * u
			}
		}
		for q, i := range s.kr {
			s.y[i] += r[q]
		}
	}
	for _, j := range s.kc {
		d[j] = 0
	}
	for i := range s.y {
		s.d[n+i] = 0
		if s.rpos[i] >= 0 {
			s.d[n+i] = s.c[n+i] - s.y[i]
		}
	}
}

// excess returns by how much basic or nonbasic variable v is out of its bounds, negative below the
// lower one, and zero if by no more than its tolerance.
func (s *Simplex) excess(v int) float64 {
	x, tol := s.x[v], s.loose*(s.ptol[v]+s.floor)
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
	if d = math.Abs(d); d > s.loose*s.dtol[v] {
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

// makeDualFeasible gives every reduced cost the right sign: a variable with two bounds changes
// over to the other one if flip allows it, the cost of any other is shifted. It reports whether a
// variable changed over.
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
