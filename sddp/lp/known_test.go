package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// wantObjective proves the answer to p optimal and compares its objective with a known one.
func wantObjective(t *testing.T, mk maker, name string, p *problem, want float64) Solver {
	t.Helper()
	s := p.load(mk)
	if status := prove(t, name, p, s); status != Optimal {
		t.Fatalf("%s: got %v, want optimal", name, status)
	}
	if got := s.Objective(); math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
		t.Fatalf("%s: objective %v, want %v", name, got, want)
	}
	return s
}

// TestProgramsThatCycleAreSolved solves programs on which the textbook simplex method cycles.
func TestProgramsThatCycleAreSolved(t *testing.T) { each(t, testCyclingExamples) }

func testCyclingExamples(t *testing.T, mk maker) {
	beale := &problem{} // Beale 1955
	for _, c := range []float64{-0.75, 150, -0.02, 6} {
		beale.column(c, 0, Inf)
	}
	beale.dense(LE, 0, 0.25, -60, -0.04, 9)
	beale.dense(LE, 0, 0.5, -90, -0.02, 3)
	beale.dense(LE, 1, 0, 0, 1, 0)
	wantObjective(t, mk, "Beale", beale, -0.05)

	kuhn := &problem{} // Kuhn, in Balinski and Tucker 1969
	for _, c := range []float64{-2, -3, 1, 12} {
		kuhn.column(c, 0, Inf)
	}
	kuhn.dense(LE, 0, -2, -9, 1, 9)
	kuhn.dense(LE, 0, 1./3, 1, -1./3, -2)
	if status := prove(t, "Kuhn without limit", kuhn, kuhn.load(mk)); status != Unbounded {
		t.Errorf("Kuhn without limit: got %v", status)
	}
	kuhn.dense(LE, 2, 2, 3, -1, -12)
	wantObjective(t, mk, "Kuhn", kuhn, -2)

	ms := &problem{} // Marshall and Suurballe 1969, as in Chvatal 1983
	for _, c := range []float64{-10, 57, 9, 24} {
		ms.column(c, 0, Inf)
	}
	ms.dense(LE, 0, 0.5, -5.5, -2.5, 9)
	ms.dense(LE, 0, 0.5, -1.5, -0.5, 1)
	ms.dense(LE, 1, 1, 0, 0, 0)
	wantObjective(t, mk, "Marshall and Suurballe", ms, -1)
}

// TestKleeMintyCubesAreSolved solves the cubes of Klee and Minty 1972, whose optimum is -5^n.
func TestKleeMintyCubesAreSolved(t *testing.T) { each(t, testKleeMinty) }

func testKleeMinty(t *testing.T, mk maker) {
	for n := 1; n <= 20; n++ {
		p := &problem{}
		for j := range n {
			p.column(-math.Pow(2, float64(n-1-j)), 0, Inf)
		}
		for i := range n {
			coefs := make([]float64, n)
			for j := range i {
				coefs[j] = math.Pow(2, float64(i-j+1))
			}
			coefs[i] = 1
			p.dense(LE, math.Pow(5, float64(i+1)), coefs...)
		}
		s := p.load(mk)
		if status, err := s.Solve(); status != Optimal || err != nil {
			t.Fatalf("n = %d: %v %v", n, status, err)
		}
		want := -math.Pow(5, float64(n))
		if got := s.Objective(); math.Abs(got-want) > 1e-9*math.Abs(want) {
			t.Errorf("n = %d: objective %v, want %v", n, got, want)
		}
	}
}

// TestMeasuresAgainstCycling proves degenerate programs with perturbation and Bland's rule in force
// from the first degenerate step, in both methods.
func TestMeasuresAgainstCycling(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 42))
	for k := range 1500 {
		p := solvable(r, 1+r.IntN(25), 1+r.IntN(25), true)
		if k%3 == 0 {
			p = anything(r, 1+r.IntN(15), 1+r.IntN(15))
		}
		patient, s := p.load(embedded), p.load(embedded)
		s.(*Simplex).impatient = true
		name := fmt.Sprintf("program %d", k)
		if a, b := prove(t, name, p, patient), prove(t, name+", impatient", p, s); a != b {
			t.Fatalf("%s: %v, impatient %v", name, a, b)
		}
	}
}

// TestTinyPivotsAreUsedWhereNoOthersExist has only pivots of 1e-8 to choose from: x3 = (1-1e-8) x2 and x1 + x2 - x3 >= 5
// leave x2 = 4e8 when x1 is at its bound 1.
func TestTinyPivotsAreUsedWhereNoOthersExist(t *testing.T) { each(t, testTinyPivot) }

func testTinyPivot(t *testing.T, mk maker) {
	near := 1 - 1e-8
	p := &problem{}
	p.column(1, 0, 1)
	p.column(1, 0, Inf)
	p.column(0, 0, Inf)
	p.dense(GE, 5, 1, 1, -1)
	p.dense(EQ, 0, 0, near, -1)
	s := p.load(mk)
	if status := prove(t, "tiny pivot", p, s); status != Optimal {
		t.Fatalf("got %v", status)
	}
	if got, want := s.Objective(), 1+4/(1-near); math.Abs(got-want) > 1e-7*want {
		t.Errorf("objective %v, want %v", got, want)
	}
}

// TestProgramsWithoutRowsOrColumnsAreSolved solves programs without rows, without columns, or with nothing to decide.
func TestProgramsWithoutRowsOrColumnsAreSolved(t *testing.T) { each(t, testEdges) }

func testEdges(t *testing.T, mk maker) {
	empty := &problem{}
	wantObjective(t, mk, "nothing", empty, 0)

	rows := &problem{}
	rows.row(LE, 1, nil, nil)
	rows.row(EQ, 0, nil, nil)
	rows.row(GE, -1, nil, nil)
	wantObjective(t, mk, "empty rows", rows, 0)
	for _, bad := range []struct {
		sense Sense
		rhs   float64
	}{{LE, -1}, {EQ, 1}, {EQ, -1}, {GE, 1}} {
		p := &problem{}
		p.column(1, 0, 1)
		p.row(bad.sense, bad.rhs, nil, nil)
		if status := prove(t, "impossible row", p, p.load(mk)); status != Infeasible {
			t.Errorf("0 %v %v: got %v", bad.sense, bad.rhs, status)
		}
	}

	cols := &problem{}
	cols.column(2, -3, 5)
	cols.column(-2, -3, 5)
	cols.column(7, 4, 4)
	cols.column(0, -Inf, Inf)
	cols.column(1, 1, Inf)
	cols.column(-1, -Inf, -1)
	wantObjective(t, mk, "columns alone", cols, -6-10+28+1+1)
	for _, c := range []struct{ cost, lo, hi float64 }{{1, -Inf, Inf}, {-1, -Inf, Inf}, {1, -Inf, 0}, {-1, 0, Inf}} {
		p := &problem{}
		p.column(c.cost, c.lo, c.hi)
		if status := prove(t, "column alone", p, p.load(mk)); status != Unbounded {
			t.Errorf("%v: got %v", c, status)
		}
	}

	// Both: no feasible point, and a direction that would be unbounded if there were one.
	both := &problem{}
	both.column(-1, 0, Inf)
	both.column(0, 0, 1)
	both.dense(GE, 2, 0, 1)
	if status := prove(t, "infeasible both ways", both, both.load(mk)); status != Infeasible {
		t.Errorf("infeasible both ways: got %v", status)
	}
}

// TestDualsMatchProgramSolvedByHand compares all results with a program solved by hand: minimize 2x + 3y subject to
// x + y >= 4, x - y <= 2, y <= 10. The optimum is x = 3, y = 1, where both rows are tight.
func TestDualsMatchProgramSolvedByHand(t *testing.T) { each(t, testDuals) }

func testDuals(t *testing.T, mk maker) {
	p := &problem{}
	p.column(2, 0, Inf)
	p.column(3, 0, 10)
	p.dense(GE, 4, 1, 1)
	p.dense(LE, 2, 1, -1)
	s := wantObjective(t, mk, "by hand", p, 9)
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"x", s.Value(0), 3}, {"y", s.Value(1), 1},
		{"dual 0", s.Dual(0), 2.5}, {"dual 1", s.Dual(1), -0.5},
		{"reduced cost 0", s.ReducedCost(0), 0}, {"reduced cost 1", s.ReducedCost(1), 0},
	} {
		if c.got != c.want { // all numbers are halves of small integers: no rounding
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
	b := s.Basis(Basis{})
	if b.Cols[0] != Basic || b.Cols[1] != Basic || b.Rows[0] == Basic || b.Rows[1] == Basic {
		t.Errorf("basis %v", b)
	}
	// A dual is the derivative of the objective: a step that keeps the basis proves it exactly.
	s.SetRHS(0, 4.5)
	p.rhs[0] = 4.5
	prove(t, "one right-hand side moved", p, s)
	if got, want := s.Objective(), 9+0.5*2.5; got != want {
		t.Errorf("objective %v after the right-hand side moved, want %v", got, want)
	}
}

// TestDuplicateCoefficientsAddUp adds up coefficients of a column named twice.
func TestDuplicateCoefficientsAddUp(t *testing.T) { each(t, testDuplicateCoefficients) }

func testDuplicateCoefficients(t *testing.T, mk maker) {
	p := &problem{}
	p.column(1, 0, Inf)
	p.column(1, 0, 7)
	p.row(GE, 6, []int{0, 1, 0, 1}, []float64{1, 4, 2, -4})
	wantObjective(t, mk, "3x >= 6", p, 2)
}

// TestTransportProblemsAreSolved proves transportation problems with equal supplies and demands, all of whose
// vertices are degenerate, and costs full of ties.
func TestTransportProblemsAreSolved(t *testing.T) { each(t, testTransport) }

func testTransport(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(11, 12))
	for k := range 60 {
		a, b := 2+r.IntN(9), 2+r.IntN(9)
		p := &problem{}
		sign := float64(1 - 2*(k%2)) // maximizing calls for the primal method
		for range a * b {
			p.column(sign*float64(r.IntN(4)), 0, Inf)
		}
		ones := func(n int) []float64 {
			v := make([]float64, n)
			for i := range v {
				v[i] = 1
			}
			return v
		}
		for i := range a {
			var cols []int
			for j := range b {
				cols = append(cols, i*b+j)
			}
			p.row(EQ, float64(b), cols, ones(b))
		}
		for j := range b {
			var cols []int
			for i := range a {
				cols = append(cols, i*b+j)
			}
			p.row(EQ, float64(a), cols, ones(a))
		}
		if status := prove(t, fmt.Sprintf("transport %d", k), p, p.load(mk)); status != Optimal {
			t.Fatalf("transport %d: got %v", k, status)
		}
	}
}

// TestAssignmentProblemsAreSolved proves assignment problems of up to 100 rows and 2500 columns and compares those
// whose costs are i*j with the known optimum, which pairs the smallest with the largest.
func TestAssignmentProblemsAreSolved(t *testing.T) { each(t, testAssignment) }

func testAssignment(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(13, 14))
	for k, n := range []int{2, 5, 10, 20, 30, 50} {
		for _, kind := range []string{"product", "random", "negative", "zero", "boxed"} {
			p := &problem{}
			want := 0.0
			for i := range n {
				want += float64(i+1) * float64(n-i)
				for j := range n {
					cost, hi := 0.0, Inf
					switch kind {
					case "product":
						cost = float64((i + 1) * (j + 1))
					case "random":
						cost = float64(r.IntN(10))
					case "negative":
						cost = -float64(r.IntN(10))
					case "boxed":
						cost, hi = whole(r, 10), 1
					}
					p.column(cost, 0, hi)
				}
			}
			for i := range 2 * n {
				var cols []int
				var coefs []float64
				for j := range n {
					if i < n {
						cols = append(cols, i*n+j)
					} else {
						cols = append(cols, j*n+i-n)
					}
					coefs = append(coefs, 1)
				}
				p.row(EQ, 1, cols, coefs)
			}
			name := fmt.Sprintf("%s assignment %d", kind, k)
			if kind == "product" {
				wantObjective(t, mk, name, p, want)
				continue
			}
			s := p.load(mk)
			if status := prove(t, name, p, s); status != Optimal {
				t.Fatalf("%s: got %v", name, status)
			}
			t.Logf("%s: %d iterations", name, s.Iterations())
		}
	}
}
