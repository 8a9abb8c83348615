package lp

import "math"

// candidate is a nonbasic variable that may enter, with its entry in the pivot row, signed so that
// its reduced cost falls in modulus as the step grows.
type candidate struct {
	v     int32
	a     float64 // modulus of the entry
	d     float64 // distance of the reduced cost from its bound, at least zero
	width float64 // distance between the bounds
}

// stallLevels is how often the dual method perturbs the costs before it chooses by smallest index only.
const stallLevels = 4

// dualMethod runs the dual simplex method from a dual feasible basis until that is primal
// feasible too. Each iteration:
//
//  1. Choose the basic variable furthest outside its bounds, measured by its Devex weight.
//  2. Compute its row of the tableau.
//  3. Choose the entering variable by the ratio test of ratioTest, which may also move variables
//     to their other bound. None means infeasible.
//  4. Compute the entering column; update values, reduced costs, weights and the inverse.
//
// Against cycling: after a series of degenerate steps the costs are perturbed by fixed pseudo-random
// amounts, which rounds undoes. As a last resort smallest indices decide.
func (s *Simplex) dualMethod() phase {
	for v := range s.wt {
		s.wt[v] = 1
	}
	s.banned = s.banned[:0]
	stall, level := 0, 0
	patience := 20 + len(s.d)/4
	if s.impatient {
		patience = -1
	}
	for {
		if s.updates >= maxUpdates && !s.refreshDual() {
			return phaseRestart
		}
		out, excess := s.leaving(level > stallLevels)
		if out < 0 {
			if s.updates == 0 {
				return phaseDone
			}
			if !s.refreshDual() {
				return phaseRestart
			}
			continue
		}
		if s.iterations >= s.maxIterations() {
			return phaseLimit
		}
		s.btran(out)
		in, alphaRow := s.ratioTest(excess, s.ptol[out], level > stallLevels)
		if in < 0 {
			switch {
			case len(s.banned) > 0:
				return phaseRestart
			case s.updates > 0:
				if !s.refreshDual() {
					return phaseRestart
				}
			case math.Abs(excess) <= looseMost/s.loose*s.ptol[out]:
				// The violation is too small to prove infeasibility.
				s.pbase[out] += math.Abs(excess)
				s.ptol[out] += math.Abs(excess)
			case s.reach(excess) >= math.Abs(excess):
				return phaseRestart
			default:
				s.farFrom = math.Copysign(1, excess)
				return phaseInfeasible
			}
			continue
		}
		s.ftran(in)
		alpha := s.entry(out)
		switch s.judge(alpha, alphaRow) {
		case pivotStale:
			if !s.refreshDual() {
				return phaseRestart
			}
			continue
		case pivotBad:
			s.banned = append(s.banned, int32(in))
			continue
		}
		if step := s.dualStep(out, in, alpha, excess); step > zeroStep {
			stall = 0
		} else if stall++; stall > patience && level <= stallLevels {
			level++
			stall = 0
			s.perturb(level)
		}
		s.banned = s.banned[:0]
		s.iterations++
	}
}

// refreshDual is refresh followed by shifts of the costs that make up for the change in rounding.
func (s *Simplex) refreshDual() bool {
	if !s.refresh() {
		return false
	}
	s.makeDualFeasible(false)
	return true
}

// leaving returns the basic variable to leave and by how much it is out of its bounds, or -1.
func (s *Simplex) leaving(smallest bool) (out int, excess float64) {
	n := len(s.cost)
	out = -1
	best := 0.0
	try := func(v int) {
		e := s.excess(v)
		if e == 0 {
			return
		}
		score := e * e / s.wt[v]
		if smallest {
			score = 1 / float64(1+v)
		}
		if score > best {
			out, excess, best = v, e, score
		}
	}
	for _, j := range s.kc {
		try(int(j))
	}
	for i, q := range s.rpos {
		if q < 0 {
			try(n + i)
		}
	}
	return out, excess
}

// reach returns by how much the entries too small for a pivot could move the leaving variable towards its
// bounds. If that is enough, its row does not prove that there is no solution.
func (s *Simplex) reach(excess float64) (sum float64) {
	s.gather(math.Copysign(1, excess), pivotNoise)
	for _, c := range s.cands {
		sum += c.a * c.width
	}
	return sum
}

// gather collects the variables whose reduced costs bound the step, given btran of the leaving
// variable and the side it is on, and whose entries exceed least.
func (s *Simplex) gather(side, least float64) {
	n := len(s.cost)
	s.cands = s.cands[:0]
	try := func(v int, a float64) {
		a *= side
		d := s.d[v]
		switch s.place[v] {
		case AtLower:
			if a <= least {
				return
			}
		case AtUpper:
			if a >= -least {
				return
			}
			a, d = -a, -d
		case Free:
			a, d = math.Abs(a), 0
			if a <= least {
				return
			}
		default:
			return
		}
		if s.vlo[v] == s.vhi[v] {
			return
		}
		for _, b := range s.banned {
			if int(b) == v {
				return
			}
		}
		s.cands = append(s.cands, candidate{int32(v), a, max(d, 0), s.vhi[v] - s.vlo[v]})
	}
	for j, a := range s.arow {
		if a != 0 {
			try(j, a)
		}
	}
	for q, a := range s.rho[:s.k] {
		if a != 0 {
			try(n+int(s.kr[q]), a)
		}
	}
}

// ratioTest chooses the entering variable by the bound flipping ratio test (Fourer 1994; Maros
// 2003) with Harris's tolerances (1973). The dual objective is piecewise linear along the step:
// its slope starts at the excess of the leaving variable and falls by a*width at the breakpoint of
// every candidate with two bounds, which the step may pass if that candidate moves to its other
// bound. Breakpoints are taken in groups that Harris's tolerance cannot tell apart; in the group
// where the slope would turn, the largest entry wins. The candidates before that group move over.
// It returns -1 if nothing bounds the step; then no candidate moves.
func (s *Simplex) ratioTest(excess, tol float64, smallest bool) (in int, alpha float64) {
	s.gather(math.Copysign(1, excess), pivotTol)
	slope := math.Abs(excess)
	rest := s.cands
	passed := 0
	for len(rest) > 0 {
		limit := Inf
		for _, c := range rest {
			t := c.d
			if !smallest {
				t += 0.1 * s.dtol[c.v]
			}
			limit = min(limit, t/c.a)
		}
		group, fall := 0, 0.0
		for k, c := range rest {
			if c.d <= limit*c.a || c.d/c.a <= limit {
				fall += c.a * c.width
				rest[k], rest[group] = rest[group], c
				group++
			}
		}
		if group == 0 {
			break // overflow
		}
		if slope-fall > tol && !smallest {
			slope -= fall
			passed += group
			rest = rest[group:]
			continue
		}
		best := rest[0]
		for _, c := range rest[1:group] {
			if better := c.a > best.a || c.a == best.a && c.v < best.v; better && !smallest || smallest && c.v < best.v {
				best = c
			}
		}
		s.cands = s.cands[:passed]
		if int(best.v) < len(s.cost) {
			return int(best.v), s.arow[best.v]
		}
		return int(best.v), s.rho[s.rpos[int(best.v)-len(s.cost)]]
	}
	return -1, 0
}

// moveOver moves the candidates that the ratio test passed to their other bounds, and updates the basic
// variables.
func (s *Simplex) moveOver() {
	n := len(s.cost)
	if len(s.cands) == 0 {
		return
	}
	// s.y is free during the dual method: it takes the change of the right-hand sides.
	r := s.y
	clear(r)
	for _, c := range s.cands {
		v := int(c.v)
		if s.place[v] == AtLower {
			s.place[v] = AtUpper
		} else {
			s.place[v] = AtLower
		}
		to := s.bound(v)
		by := to - s.x[v]
		s.x[v] = to
		for e := s.colStart[v]; e < s.colStart[v+1]; e++ {
			r[s.colRow[e]] -= by * s.colVal[e]
		}
	}
	for p, j := range s.kc {
		sum := 0.0
		for q, u := range s.inv[p*s.ld : p*s.ld+s.k] {
			sum += u * r[s.kr[q]]
		}
		s.x[j] += sum
		if sum == 0 {
			continue
		}
		for e := s.colStart[j]; e < s.colStart[j+1]; e++ {
			if i := s.colRow[e]; s.rpos[i] < 0 {
				r[i] -= sum * s.colVal[e]
			}
		}
	}
	for i, q := range s.rpos {
		if q < 0 {
			s.x[n+i] += r[i]
		}
	}
}

// dualStep exchanges out for in and returns the length of the dual step.
func (s *Simplex) dualStep(out, in int, alpha, excess float64) float64 {
	n := len(s.cost)
	s.moveOver()
	if d := s.d[in]; d != 0 && s.wrongSide(in, d) {
		s.shift(in, 0)
	}
	theta := s.d[in] / alpha
	if theta != 0 {
		for j, a := range s.arow {
			if a != 0 && s.place[j] != Basic {
				s.d[j] -= theta * a
			}
		}
		for q, a := range s.rho[:s.k] {
			s.d[n+int(s.kr[q])] -= theta * a
		}
	}
	s.d[in], s.d[out] = 0, -theta
	to, place := s.vlo[out], AtLower
	if excess > 0 && s.vlo[out] != s.vhi[out] {
		to, place = s.vhi[out], AtUpper
	}
	step := (s.x[out] - to) / alpha
	s.moveBasics(step)
	s.x[in] += step
	s.x[out] = to
	s.updateWeights(out, in, alpha)
	s.exchange(out, in)
	s.place[out], s.place[in] = place, Basic
	if theta != 0 {
		s.fixSigns()
	}
	return math.Abs(theta)
}

// wrongSide reports whether reduced cost d has the wrong sign for v, however small.
func (s *Simplex) wrongSide(v int, d float64) bool {
	return s.place[v] == AtLower && d < 0 || s.place[v] == AtUpper && d > 0 || s.place[v] == Free
}

// fixSigns shifts the costs of variables that a step took to the wrong sign by more than rounding.
func (s *Simplex) fixSigns() {
	for v, d := range s.d {
		if math.Abs(d) > s.dtol[v] && s.place[v] != Basic && s.wrongSide(v, d) && s.vlo[v] != s.vhi[v] {
			s.shift(v, 0)
		}
	}
}

// moveBasics subtracts step times the entering column from the basic variables.
func (s *Simplex) moveBasics(step float64) {
	if step == 0 {
		return
	}
	n := len(s.cost)
	for p, f := range s.w[:s.k] {
		s.x[s.kc[p]] -= step * f
	}
	for i, q := range s.rpos {
		if q < 0 {
			s.x[n+i] -= step * s.ws[i]
		}
	}
}

// updateWeights updates the dual Devex weights of the basic variables (Harris 1973, as in Koberstein
// 2005).
func (s *Simplex) updateWeights(out, in int, alpha float64) {
	n := len(s.cost)
	ref := s.wt[out] / (alpha * alpha)
	for p, f := range s.w[:s.k] {
		if f != 0 {
			j := s.kc[p]
			s.wt[j] = max(s.wt[j], f*f*ref)
		}
	}
	for i, q := range s.rpos {
		if f := s.ws[i]; q < 0 && f != 0 {
			s.wt[n+i] = max(s.wt[n+i], f*f*ref)
		}
	}
	s.wt[in] = max(ref, 1)
}

// perturb moves the reduced costs of nonbasic variables away from zero, in the direction that
// keeps their sign, by amounts that differ from variable to variable and grow with level.
func (s *Simplex) perturb(level int) {
	size := 1e-7 * math.Pow(10, float64(level-1))
	for v := range s.d {
		if s.place[v] == Basic || s.place[v] == Free || s.vlo[v] == s.vhi[v] {
			continue
		}
		by := size * (0.01 + math.Abs(s.c[v])) * (1 + spread(v, level))
		if s.place[v] == AtUpper {
			by = -by
		}
		s.shift(v, s.d[v]+by)
	}
}

// spread returns a number in [0, 1) that depends on v and level alone (the finalizer of
// SplitMix64, Steele et al. 2014).
func spread(v, level int) float64 {
	z := (uint64(v)+1)*0x9e3779b97f4a7c15 + uint64(level)*0xd1342543de82ef95
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
