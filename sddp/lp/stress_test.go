package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// rescaled returns p with columns and rows multiplied by powers of ten up to 10^±w: the same
// program in other units.
func rescaled(r *rand.Rand, p *problem, w float64) *problem {
	q := &problem{}
	unit := make([]float64, len(p.cost))
	for j := range p.cost {
		unit[j] = math.Pow(10, w*(2*r.Float64()-1))
		q.column(p.cost[j]*unit[j], p.lo[j]/unit[j], p.hi[j]/unit[j])
	}
	for i := range p.rhs {
		f := math.Pow(10, w*(2*r.Float64()-1))
		coefs := make([]float64, len(p.coefs[i]))
		for k, j := range p.cols[i] {
			coefs[k] = p.coefs[i][k] * f * unit[j]
		}
		q.row(p.sense[i], p.rhs[i]*f, p.cols[i], coefs)
	}
	return q
}

// TestUnitsDoNotMatter solves programs in units that differ by up to twelve orders of magnitude:
// the objective stays the same.
func TestUnitsDoNotMatter(t *testing.T) { each(t, testUnitsDoNotMatter) }

func testUnitsDoNotMatter(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(31, 32))
	for k := range sample(1500) {
		p := solvable(r, 1+r.IntN(20), 1+r.IntN(20), k%2 == 0)
		s := p.load(mk)
		if status := prove(t, fmt.Sprintf("program %d", k), p, s); status != Optimal {
			t.Fatalf("program %d: got %v", k, status)
		}
		q := rescaled(r, p, float64(1+k%6)).load(mk)
		if status, err := q.Solve(); status != Optimal || err != nil {
			t.Fatalf("program %d in other units: got %v, %v\n%v", k, status, err, p)
		}
		size := 1.0
		for j, c := range p.cost {
			size = max(size, math.Abs(c*s.Value(j)))
		}
		if a, b := s.Objective(), q.Objective(); math.Abs(a-b) > 1e-8*size {
			t.Errorf("program %d: objective %v, in other units %v\n%v", k, a, b, p)
		}
	}
}

// TestWideCoefficientsAreProved proves programs whose coefficients span six orders of magnitude within a
// row in a way that no choice of units mends.
func TestWideCoefficientsAreProved(t *testing.T) { each(t, testWideCoefficientsAreProved) }

func testWideCoefficientsAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(33, 34))
	for k := range sample(3000) {
		p := anything(r, 1+r.IntN(12), 1+r.IntN(12))
		w := float64(1 + k%3)
		for i := range p.coefs {
			coefs := make([]float64, len(p.coefs[i]))
			for q, a := range p.coefs[i] {
				coefs[q] = a * math.Pow(10, w*(2*r.Float64()-1))
			}
			p.coefs[i] = coefs
		}
		prove(t, fmt.Sprintf("program %d", k), p, p.load(mk))
	}
}

// TestExtremeCoefficientsEnd solves one-row programs with the optimum x = 1 in absurd units, and asks
// only for an end where arithmetic overflows.
func TestExtremeCoefficientsEnd(t *testing.T) { each(t, testExtremeCoefficientsEnd) }

func testExtremeCoefficientsEnd(t *testing.T, mk maker) {
	for _, e := range []int{-300, -200, -100, 100, 200, 300} {
		a := math.Pow(10, float64(e))
		p := &problem{}
		p.column(1, 0, 5)
		p.dense(GE, a, a)
		wantObjective(t, mk, fmt.Sprintf("coefficient 1e%d", e), p, 1)
		p = &problem{}
		p.column(a, 0, 5)
		p.dense(GE, 1, 1)
		s := p.load(mk)
		if status, err := s.Solve(); status != Optimal || err != nil || math.Abs(s.Objective()-a) > 1e-9*a || s.Value(0) != 1 {
			t.Errorf("cost 1e%d: got %v, %v, objective %v", e, status, err, s.Objective())
		}
	}
	extreme := []float64{0, math.SmallestNonzeroFloat64, 1e-308, 1e-100, 1, 1e100, math.MaxFloat64}
	r := rand.New(rand.NewPCG(35, 36))
	pick := func() float64 { return extreme[r.IntN(len(extreme))] * float64(1-2*r.IntN(2)) }
	for range sample(3000) {
		p := &problem{}
		for range 1 + r.IntN(4) {
			lo, hi := pick(), pick()
			if r.IntN(4) == 0 {
				hi = Inf
			}
			p.column(pick(), min(lo, hi), max(lo, hi))
		}
		for range r.IntN(4) {
			coefs := make([]float64, len(p.cost))
			for j := range coefs {
				coefs[j] = pick()
			}
			p.dense(Sense(r.IntN(3)), pick(), coefs...)
		}
		s := p.load(mk)
		status, err := s.Solve()
		if err != nil {
			t.Fatalf("%v\n%v", err, p)
		}
		if v := s.Objective(); status == Optimal && v-v != 0 {
			t.Fatalf("optimal with objective %v\n%v", v, p)
		}
	}
}

// TestLargeProgramsAreProved proves programs at the upper end of what the solver is meant for.
func TestLargeProgramsAreProved(t *testing.T) { each(t, testLargeProgramsAreProved) }

func testLargeProgramsAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(37, 38))
	sizes := []struct {
		n, m       int
		degenerate bool
	}{{150, 500, true}, {500, 150, false}, {300, 300, false}, {300, 300, true}}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, c := range sizes {
		p := solvable(r, c.n, c.m, c.degenerate)
		s := p.load(mk)
		if status := prove(t, fmt.Sprintf("%d columns, %d rows", c.n, c.m), p, s); status != Optimal {
			t.Errorf("%v: got %v", c, status)
		}
		t.Logf("%d columns, %d rows: %d iterations", c.n, c.m, s.Iterations())
		for i := range 5 { // wider rows: the old optimum stays feasible
			p.rhs[i] += float64(1 - int(p.sense[i]))
			s.SetRHS(i, p.rhs[i])
		}
		if status := prove(t, "warm", p, s); status != Optimal {
			t.Errorf("%v, warm: got %v", c, status)
		}
	}
	for range sample(5) {
		p := anything(r, 200, 150)
		prove(t, "anything", p, p.load(mk))
	}
}

// TestDependentRowsAreProved proves programs with rows that follow from others, up to rounding, from bases
// drawn without regard to that: most are singular.
func TestDependentRowsAreProved(t *testing.T) { each(t, testDependentRowsAreProved) }

func testDependentRowsAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(43, 44))
	for k := range sample(1500) {
		p := solvable(r, 2+r.IntN(20), 2+r.IntN(14), false)
		rows := len(p.rhs)
		for range 1 + r.IntN(4) {
			sum, rhs := make([]float64, len(p.cost)), 0.0
			for i := range rows {
				f := r.NormFloat64()
				for q, j := range p.cols[i] {
					sum[j] += f * p.coefs[i][q]
				}
				rhs += f * p.rhs[i]
			}
			p.dense(LE, rhs+1e6, sum...) // never tight at an optimum, easily so in a basis
		}
		s := p.load(mk)
		if err := s.SetBasis(randomBasis(r, len(p.cost), len(p.rhs))); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("program %d", k)
		warm := prove(t, name, p, s)
		if cold := prove(t, name+", cold", p, p.load(mk)); cold != warm {
			t.Fatalf("%s: %v warm, %v cold\n%v", name, warm, cold, p)
		}
	}
}
