package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// exactly returns a solver that solves every program in whole numbers, after the method in float64.
func exactly() Solver {
	s := New()
	s.exactly = true
	return s
}

// TestExactAnswersAreProved proves the answers in whole numbers to programs of all kinds, warm from bases of
// all kinds. They are those of the method in float64.
func TestExactAnswersAreProved(t *testing.T) {
	r := rand.New(rand.NewPCG(71, 72))
	seen := map[Status]int{}
	for k := range 1500 {
		p := anything(r, r.IntN(13), r.IntN(11))
		if k%3 == 0 {
			p = solvable(r, 1+r.IntN(15), 1+r.IntN(12), k%2 == 0)
		}
		s := p.load(exactly)
		for step := range 3 {
			name := fmt.Sprintf("program %d, step %d", k, step)
			status := prove(t, name, p, s)
			if want := prove(t, name, p, p.load(embedded)); status != want {
				t.Fatalf("%s: %v, in float64 %v\n%v", name, status, want, p)
			}
			seen[status]++
			change(r, p, s)
			if err := s.SetBasis(randomBasis(r, len(p.cost), len(p.rhs))); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, status := range []Status{Optimal, Infeasible, Unbounded} {
		if seen[status] < 100 {
			t.Errorf("only %d programs are %v: the generator is too narrow", seen[status], status)
		}
	}
}

// TestExactMethodEndsOnCyclingPrograms starts the method in whole numbers on the programs with which Hoffman
// (1953), Beale (1955) and Kuhn showed that the simplex method may cycle, from the slack basis.
func TestExactMethodEndsOnCyclingPrograms(t *testing.T) {
	beale := &problem{}
	for _, c := range []float64{-0.75, 150, -0.02, 6} {
		beale.column(c, 0, Inf)
	}
	beale.dense(LE, 0, 0.25, -60, -1.0/25, 9)
	beale.dense(LE, 0, 0.5, -90, -1.0/50, 3)
	beale.dense(LE, 1, 0, 0, 1, 0)
	kuhn := &problem{}
	for _, c := range []float64{-2, -3, 1, 12} {
		kuhn.column(c, 0, Inf)
	}
	kuhn.dense(LE, 0, -2, -9, 1, 9)
	kuhn.dense(LE, 0, 1.0/3, 1, -1.0/3, -2)
	kuhn.dense(LE, 2, 2, 3, -1, -12)
	for _, k := range []struct {
		name string
		p    *problem
		want float64
	}{{"Beale", beale, -0.05}, {"Kuhn", kuhn, -2}} {
		s := New()
		for j, c := range k.p.cost {
			s.AddColumn(c, k.p.lo[j], k.p.hi[j])
		}
		for i, b := range k.p.rhs {
			s.AddRow(k.p.sense[i], b, k.p.cols[i], k.p.coefs[i])
		}
		if err := s.begin(); err != nil {
			t.Fatal(err)
		}
		slacks := append(append([]VarStatus(nil), s.colPlace...), s.rowPlace...)
		status := s.solveExactly(slacks, make([]float64, len(slacks)), make([]float64, len(slacks)), 0)
		if status != Optimal || math.Abs(s.Objective()-k.want) > 1e-12 {
			t.Errorf("%s: %v with objective %v, want %v", k.name, status, s.Objective(), k.want)
		}
		if s.Iterations() > 20 {
			t.Errorf("%s: %d iterations", k.name, s.Iterations())
		}
	}
}

// TestExactMethodSolvesDispatch solves stage problems with nearly parallel cuts in whole numbers.
func TestExactMethodSolvesDispatch(t *testing.T) {
	r := rand.New(rand.NewPCG(73, 74))
	for _, spread := range []float64{1, 1e-3, 1e-9} {
		p := newDispatch(r)
		s := p.load(exactly)
		for c := range 8 {
			p.addCut(r, spread, s)
			p.newInflows(r, s)
			if status := prove(t, fmt.Sprintf("%d cuts", c+1), &p.problem, s); status != Optimal {
				t.Fatalf("%d cuts: %v", c+1, status)
			}
		}
	}
}

// TestExactMethodAllowsRounding solves a program that rounding has made infeasible by less than the
// tolerance: 0.1 + 0.2 exceeds 0.3 in float64.
func TestExactMethodAllowsRounding(t *testing.T) {
	p := &problem{}
	p.column(1, 0.1, 5)
	p.column(1, 0.2, 5)
	p.dense(EQ, 0.3, 1, 1)
	if status := prove(t, "rounding", p, p.load(exactly)); status != Optimal {
		t.Errorf("got %v", status)
	}
	p.rhs[0] = 0.2999
	if status := prove(t, "more than rounding", p, p.load(exactly)); status != Infeasible {
		t.Errorf("got %v", status)
	}
}

// TestExactMethodIgnoresCostsOfRounding solves a program in which a free column costs as much as the row that
// it shares with another one is worth, up to rounding: 0.1 + 0.2 exceeds 0.3 in float64. Without tolerance that
// program is unbounded.
func TestExactMethodIgnoresCostsOfRounding(t *testing.T) {
	p := &problem{}
	tenth, fifth := 0.1, 0.2 // variables, because the sum of constants is not rounded
	p.column(tenth+fifth, math.Inf(-1), Inf)
	p.column(0.3, math.Inf(-1), Inf)
	p.column(1, 2, 5)
	p.dense(EQ, 10, 1, 1, 1)
	if status := prove(t, "rounding", p, p.load(exactly)); status != Optimal {
		t.Errorf("got %v", status)
	}
	p.cost[0] = 0.3001
	if status := prove(t, "more than rounding", p, p.load(exactly)); status != Unbounded {
		t.Errorf("got %v", status)
	}
}

// TestExactMethodKeepsToIterationLimit stops at a limit that is set, in whole numbers too.
func TestExactMethodKeepsToIterationLimit(t *testing.T) {
	r := rand.New(rand.NewPCG(75, 76))
	p := solvable(r, 30, 20, true)
	s := p.load(exactly)
	s.SetIterationLimit(3)
	if status, err := s.Solve(); status != IterationLimit || err != nil || s.Iterations() != 3 {
		t.Errorf("got %v, %v after %d iterations, want the limit of 3", status, err, s.Iterations())
	}
}
