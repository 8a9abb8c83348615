package lp

import "math"

// primal runs the primal simplex method from a primal feasible basis until that is dual feasible
// too. Each iteration:
//
//  1. Choose the nonbasic variable whose reduced cost has the wrong sign and is the largest by its
//     Devex weight.
//  2. Compute its column of the tableau.
//  3. Choose the leaving variable by a ratio test with Harris's tolerances (1973), or move the
//     entering one to its other bound. No limit on the step means unbounded.
//  4. Compute the leaving row; update values, reduced costs, weights and the inverse.
//
// Against cycling: after a series of steps that do not lower the objective by more than rounding, entering
// and leaving variables follow Bland's rule (1977) until one does.
func (s *Simplex) primal() phase {
	for v := range s.wt {
		s.wt[v] = 1
	}
	s.banned = s.banned[:0]
	stall, size := 0, 0.0
	for j, c := range s.c[:len(s.cost)] {
		size = max(size, math.Abs(c*s.x[j]))
	}
	patience := 50 + len(s.d)
	if s.impatient {
		patience = -1
	}
	for {
		if s.updates >= maxUpdates {
			if !s.refresh() || !s.primalFeasible() {
				return phaseRestart
			}
		}
		bland := stall > patience
		in := s.entering(bland)
		if in < 0 {
			if s.updates == 0 {
				if len(s.banned) > 0 {
					return phaseRestart
				}
				return phaseDone
			}
			if !s.refresh() || !s.primalFeasible() {
				return phaseRestart
			}
			continue
		}
		if s.iterations >= s.maxIterations() {
			return phaseLimit
		}
		dir := 1.0
		if s.d[in] > 0 {
			dir = -1
		}
		s.ftran(in)
		out, step := s.leavingPrimal(dir, bland)
		width := s.vhi[in] - s.vlo[in]
		if out < 0 && math.IsInf(width, 1) {
			if s.updates == 0 {
				s.rayFrom, s.rayDir = in, dir
				return phaseUnbounded
			}
			if !s.refresh() || !s.primalFeasible() {
				return phaseRestart
			}
			continue
		}
		s.iterations++
		if step > zeroStep && math.Abs(s.d[in])*step > zeroStep*size {
			stall = 0
		} else {
			stall++
		}
		if width <= step {
			s.moveBasics(dir * width)
			if s.place[in] == AtLower {
				s.place[in] = AtUpper
			} else {
				s.place[in] = AtLower
			}
			s.x[in] = s.bound(in)
			stall = 0
			continue
		}
		s.btran(out)
		alpha := s.entry(out)
		alphaRow := 0.0
		if n := len(s.cost); in < n {
			alphaRow = s.arow[in]
		} else {
			alphaRow = s.rho[s.rpos[in-n]]
		}
		switch s.judge(alpha, alphaRow) {
		case pivotStale:
			if !s.refresh() || !s.primalFeasible() {
				return phaseRestart
			}
			continue
		case pivotBad:
			s.banned = append(s.banned, int32(in))
			continue
		}
		s.primalStep(out, in, alpha, dir, step)
		s.banned = s.banned[:0]
	}
}

// entering returns the nonbasic variable to enter, or -1.
func (s *Simplex) entering(bland bool) int {
	in, best := -1, 0.0
	for v := range s.d {
		d := s.wrongSign(v)
		if d == 0 {
			continue
		}
		score := d * d / s.wt[v]
		if score <= best {
			continue
		}
		ok := true
		for _, b := range s.banned {
			ok = ok && int(b) != v
		}
		if !ok {
			continue
		}
		if bland {
			return v
		}
		in, best = v, score
	}
	return in
}

// leavingPrimal returns the basic variable that limits the step of the entering one, and the
// length of the step, or -1 and +Inf.
func (s *Simplex) leavingPrimal(dir float64, bland bool) (out int, step float64) {
	n := len(s.cost)
	limit := Inf
	// room returns how far variable v can move in the direction it is pushed, and how fast it is.
	room := func(v int, f float64) (dist, speed float64) {
		switch f *= dir; {
		case f > pivotTol:
			return s.x[v] - s.vlo[v], f
		case f < -pivotTol:
			return s.vhi[v] - s.x[v], -f
		}
		return Inf, 1
	}
	first := func(v int, f float64) {
		dist, speed := room(v, f)
		if !bland {
			dist = max(dist, 0) + 0.5*s.ptol[v]
		}
		limit = min(limit, max(dist, 0)/speed)
	}
	for p, f := range s.w[:s.k] {
		first(int(s.kc[p]), f)
	}
	for i, q := range s.rpos {
		if q < 0 {
			first(n+i, s.ws[i])
		}
	}
	if math.IsInf(limit, 1) {
		return -1, limit
	}
	out, step = -1, Inf
	best := 0.0
	second := func(v int, f float64) {
		dist, speed := room(v, f)
		if math.IsInf(dist, 1) || max(dist, 0)/speed > limit {
			return
		}
		if bland && (out < 0 || v < out) || !bland && (speed > best || speed == best && v < out) {
			out, step, best = v, max(dist, 0)/speed, speed
		}
	}
	for p, f := range s.w[:s.k] {
		second(int(s.kc[p]), f)
	}
	for i, q := range s.rpos {
		if q < 0 {
			second(n+i, s.ws[i])
		}
	}
	return out, step
}

// primalStep exchanges out for in after a step of the given length and direction.
func (s *Simplex) primalStep(out, in int, alpha, dir, step float64) {
	n := len(s.cost)
	theta := s.d[in] / alpha
	ref := s.wt[in] / (alpha * alpha)
	update := func(v int, a float64) {
		s.d[v] -= theta * a
		s.wt[v] = max(s.wt[v], a*a*ref)
	}
	for j, a := range s.arow {
		if a != 0 && s.place[j] != Basic {
			update(j, a)
		}
	}
	for q, a := range s.rho[:s.k] {
		if a != 0 {
			update(n+int(s.kr[q]), a)
		}
	}
	s.d[in], s.d[out] = 0, -theta
	s.wt[out] = max(ref, 1)
	s.moveBasics(dir * step)
	s.x[in] += dir * step
	to, place := s.vlo[out], AtLower
	if alpha*dir < 0 {
		to, place = s.vhi[out], AtUpper
	}
	if s.vlo[out] == s.vhi[out] {
		place = AtLower
	}
	s.exchange(out, in)
	s.x[out] = to
	s.place[out], s.place[in] = place, Basic
}
