package lp

// phase is how a run of the dual or of the primal simplex method ended.
type phase int8

const (
	phaseDone       phase = iota // feasible in the sense of that method
	phaseRestart                 // the basis was repaired or the arithmetic failed
	phaseInfeasible              // proof of infeasibility found
	phaseUnbounded               // ray found
	phaseLimit                   // iteration limit met
)

// Solve searches for an optimal solution from the current basis. It always ends, because the numbers of
// iterations and phases are bounded. If it then has no answer, or one that only loose tolerances allow,
// exact finds it, unless the program is too large for that. Its error is [ErrMisuse], with the status
// NumericalFailure and an unchanged basis.
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
	if s.unreliable() {
		primal, dual := s.tolerances()
		s.status = s.solveExactly(s.place, primal, dual, s.limit)
		return s.status, nil
	}
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
// Invariant: step 1 starts with a freshly factored basis, because both methods end with one.
//
// Step 1 restores shifted costs, so the answer never depends on them. Normally there are two rounds.
// Rounding can cause more, and late rounds use looser tolerances.
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

// unreliable reports whether the answer of rounds needs arithmetic without rounding.
func (s *Simplex) unreliable() bool {
	if len(s.cost)*len(s.rhs) > exactMost || s.status == IterationLimit && s.limit > 0 {
		return false
	}
	return s.exactly || s.loose > 1 || s.strained || s.status == IterationLimit || s.status == NumericalFailure
}

// tolerances returns by how much each variable may violate its bounds, and by how much its reduced cost may
// have the wrong sign, in the units of the program.
func (s *Simplex) tolerances() (primal, dual []float64) {
	primal, dual = append(primal, s.pbase...), append(dual, s.dbase...)
	for v := range primal {
		f := 1.0
		if n := len(s.cost); v < n {
			f = pow2(s.colExp[v])
		} else {
			f = 1 / pow2(s.rowExp[v-n])
		}
		primal[v] *= f
		dual[v] /= f * pow2(s.objExp)
	}
	return primal, dual
}

// startCold replaces the basis by the slack basis.
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

// unload stores the result in the units of the program, and the basis.
func (s *Simplex) unload() {
	n := len(s.cost)
	copy(s.colPlace, s.place[:n])
	copy(s.rowPlace, s.place[n:])
	objective, finite := s.store(s.x, s.d, s.y)
	switch s.status {
	case Optimal:
		if s.objective = objective; !finite {
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
