package lp

import "github.com/cohort-hpc/cohort/sddp/internal/clp"

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
// iterations and phases are bounded. If it then has no answer, Clp may find one where its library is
// installed. Its error is [ErrMisuse], with the status NumericalFailure and an unchanged basis.
func (s *Simplex) Solve() (Status, error) {
	if err := s.solve(); err != nil {
		return s.status, err
	}
	if s.unanswered() {
		s.askClp()
	}
	return s.status, nil
}

// solve is Solve without Clp.
func (s *Simplex) solve() error {
	if err := s.begin(); err != nil {
		return err
	}
	s.load()
	if s.overflow {
		return nil
	}
	s.factor()
	s.status = s.rounds()
	s.unload()
	return nil
}

// askClp lets Clp solve the program if its library is installed.
func (s *Simplex) askClp() {
	library, err := clp.Open()
	if err != nil {
		return
	}
	other := Clp{program: s.program, library: library}
	if other.iterations = 0; other.loadProgram() {
		other.status = other.attempts()
	}
	other.iterations += s.iterations
	s.program = other.program
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
