package lp

// phase is how a run of the dual or of the primal simplex method ended.
type phase int8

const (
	phaseDone       phase = iota // as feasible as that method makes it
	phaseRestart                 // the basis was repaired or the arithmetic failed
	phaseInfeasible              // proof of infeasibility found
	phaseUnbounded               // ray found
	phaseLimit                   // iteration limit met
)

// Solve looks for an optimal solution, from the basis in place. It always ends: the number of
// iterations and of phases is bounded. The error is for misuse only and comes with
// NumericalFailure; the basis is then unchanged.
func (s *Simplex) Solve() (Status, error) {
	if err := s.begin(); err != nil {
		return s.status, err
	}
	s.load()
	if s.overflow {
		return s.status, nil
	}
	s.factor()
	s.status = s.rounds()
	s.unload()
	return s.status, nil
}

// rounds alternates between the two methods until a basis is feasible in both senses.
//
//  1. With the costs of the program, compute values and duals.
//  2. Feasible in both senses: optimal.
//  3. Only primal feasible: the primal method, which ends optimal or unbounded.
//  4. Otherwise make it dual feasible, moving variables to their other bound and shifting the
//     costs of those that have none, and run the dual method, which ends feasible or with a proof
//     of infeasibility, which does not depend on costs.
//
// Invariant: every step 1 meets a freshly factored basis, as both methods end on one.
//
// Shifted costs are taken back in step 1, so the answer never rests on them. Two rounds are the
// rule; more come from rounding, and late ones work with looser tolerances.
func (s *Simplex) rounds() Status {
	for round := range maxRounds {
		if round == coldRound {
			s.singular = singularLast
			s.startCold()
		}
		if round >= looseRound {
			s.loose = min(s.loose*10, looseMost)
		}
		if s.shifted {
			s.restoreCosts()
		}
		s.computeX()
		s.computeD()
		if !s.sound {
			s.singular = min(s.singular*100, singularMost)
			s.factor()
			continue
		}
		var end phase
		switch primal := s.primalFeasible(); {
		case primal && s.dualFeasible():
			return Optimal
		case primal:
			end = s.primal()
		default:
			if s.makeDualFeasible(true) {
				s.computeX()
			}
			end = s.dualMethod()
		}
		switch end {
		case phaseInfeasible:
			return Infeasible
		case phaseUnbounded:
			return Unbounded
		case phaseLimit:
			return IterationLimit
		}
	}
	return NumericalFailure
}

// startCold replaces the basis by that of the slacks.
func (s *Simplex) startCold() {
	n := len(s.cost)
	for v := range s.place {
		if v >= n {
			s.place[v] = Basic
		} else {
			s.place[v] = preferred(s.cost[v], s.vlo[v], s.vhi[v])
		}
	}
	s.factor()
}

// refresh factors the basis anew and recomputes values and reduced costs, with shifts in place. It
// reports false if the basis had to be repaired or is numerically singular.
func (s *Simplex) refresh() bool {
	if s.factor() {
		return false
	}
	s.computeX()
	s.computeD()
	return s.sound
}

// unload stores the outcome in the units of the program, and the basis.
func (s *Simplex) unload() {
	n := len(s.cost)
	copy(s.colPlace, s.place[:n])
	copy(s.rowPlace, s.place[n:])
	sum := 0.0
	for j := range n {
		f := pow2(s.colExp[j])
		s.value[j] = s.x[j] * f
		s.reduced[j] = s.d[j] / f / pow2(s.objExp)
		sum += s.cost[j] * s.value[j]
	}
	check := sum
	for i := range s.dual {
		s.dual[i] = s.y[i] * pow2(s.rowExp[i]) / pow2(s.objExp)
		check += s.dual[i]
	}
	switch s.status {
	case Optimal:
		if s.objective = sum; check-check != 0 {
			s.status = NumericalFailure
		}
	case Infeasible:
		s.storeFarkas()
	case Unbounded:
		s.storeRay()
	}
}

// storeFarkas stores the row of the last btran as proof of infeasibility.
func (s *Simplex) storeFarkas() {
	put := func(i int, y float64) {
		if s.sense[i] == LE && y > 0 || s.sense[i] == GE && y < 0 {
			return // rounding
		}
		s.farkas[i] = y * pow2(s.rowExp[i])
	}
	for q, u := range s.rho[:s.k] {
		put(int(s.kr[q]), u*s.farFrom)
	}
	if s.self >= 0 {
		put(s.self, s.farFrom)
	}
}

// storeRay stores the column of the last ftran as proof of unboundedness.
func (s *Simplex) storeRay() {
	for p, j := range s.kc {
		s.ray[j] = -s.rayDir * s.w[p] * pow2(s.colExp[j])
	}
	if n := len(s.cost); s.rayFrom < n {
		s.ray[s.rayFrom] = s.rayDir * pow2(s.colExp[s.rayFrom])
	}
}
