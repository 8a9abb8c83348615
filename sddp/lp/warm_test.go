package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// change makes one random change to p and the same one to s.
func change(r *rand.Rand, p *problem, s Solver) {
	n, m := len(p.cost), len(p.rhs)
	switch k := r.IntN(12); {
	case k < 4 && m > 0:
		i := r.IntN(m)
		p.rhs[i] += whole(r, 3)
		s.SetRHS(i, p.rhs[i])
	case k < 6 && n > 0:
		j := r.IntN(n)
		lo, hi := -Inf, Inf
		if r.IntN(4) > 0 {
			lo = whole(r, 5)
		}
		if r.IntN(2) == 0 {
			hi = max(lo, -5) + float64(r.IntN(5))
		}
		p.lo[j], p.hi[j] = lo, hi
		s.SetBounds(j, lo, hi)
	case k < 8 && n > 0:
		j := r.IntN(n)
		p.cost[j] = whole(r, 6)
		s.SetCost(j, p.cost[j])
	case k == 8 && n > 0:
		cost, lo := whole(r, 4), whole(r, 2)
		p.column(cost, lo, lo+3)
		s.AddColumn(cost, lo, lo+3)
	case k < 11 && n > 0:
		var cols []int
		var coefs []float64
		for range 1 + r.IntN(n) {
			cols, coefs = append(cols, r.IntN(n)), append(coefs, whole(r, 4))
		}
		sense, rhs := Sense(r.IntN(3)), whole(r, 8)
		p.row(sense, rhs, cols, coefs)
		s.AddRow(sense, rhs, cols, coefs)
	case m > 0:
		keep := r.IntN(m + 1)
		p.sense, p.rhs, p.cols, p.coefs = p.sense[:keep], p.rhs[:keep], p.cols[:keep], p.coefs[:keep]
		s.Truncate(keep)
	}
}

// randomBasis returns places without regard to what a basis is.
func randomBasis(r *rand.Rand, n, m int) Basis {
	b := Basis{}
	for range n {
		b.Cols = append(b.Cols, VarStatus(r.IntN(4)))
	}
	for range m {
		b.Rows = append(b.Rows, VarStatus(r.IntN(4)))
	}
	return b
}

// TestWarmAnswersAreProved proves every answer along random histories of changes and compares status and
// objective with those of a solver that starts afresh.
func TestWarmAnswersAreProved(t *testing.T) { each(t, testWarmAnswersAreProved) }

func testWarmAnswersAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(21, 22))
	for k := range sample(300) {
		p := anything(r, 1+r.IntN(10), r.IntN(8))
		s := p.load(mk)
		for step := range 25 {
			for range 1 + r.IntN(3) {
				change(r, p, s)
			}
			if r.IntN(5) == 0 {
				if err := s.SetBasis(randomBasis(r, r.IntN(len(p.cost)+1), r.IntN(len(p.rhs)+1))); err != nil {
					t.Fatal(err)
				}
			}
			name := fmt.Sprintf("history %d, step %d", k, step)
			status := prove(t, name, p, s)
			cold := p.load(mk)
			if got := prove(t, name+", cold", p, cold); got != status {
				t.Fatalf("%s: %v warm, %v cold\n%v", name, status, got, p)
			}
			if a, b := s.Objective(), cold.Objective(); status == Optimal && math.Abs(a-b) > kktTol*(1+math.Abs(b)) {
				t.Fatalf("%s: objective %v warm, %v cold\n%v", name, a, b, p)
			}
			checkBasis(t, name, s)
		}
	}
}

// checkBasis fails the test unless the basis has one basic variable for each row.
func checkBasis(t *testing.T, name string, s Solver) {
	t.Helper()
	b, basic := s.Basis(Basis{}), 0
	for _, places := range [2][]VarStatus{b.Cols, b.Rows} {
		for _, v := range places {
			if v == Basic {
				basic++
			}
		}
	}
	if basic != s.Rows() {
		t.Fatalf("%s: %d basic variables for %d rows", name, basic, s.Rows())
	}
}

// TestResolveNeedsNoIterations solves again from the final basis: there is nothing left to do.
func TestResolveNeedsNoIterations(t *testing.T) { each(t, testResolveNeedsNoIterations) }

func testResolveNeedsNoIterations(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(23, 24))
	for k := range sample(200) {
		p := solvable(r, 1+r.IntN(20), r.IntN(20), k%2 == 0)
		s := p.load(mk)
		prove(t, "first", p, s)
		again := p.load(mk)
		if err := again.SetBasis(s.Basis(Basis{})); err != nil {
			t.Fatal(err)
		}
		for _, s := range []Solver{s, again} {
			if prove(t, "again", p, s); s.Iterations() != 0 {
				t.Errorf("program %d: %d iterations from an optimal basis", k, s.Iterations())
			}
		}
	}
}

// bits returns everything a solve returns, floating-point numbers as their bits.
func bits(s Solver, status Status) []uint64 {
	b := s.Basis(Basis{})
	out := []uint64{uint64(status), uint64(s.Iterations()), math.Float64bits(s.Objective())}
	for j := range s.Columns() {
		out = append(out, math.Float64bits(s.Value(j)), math.Float64bits(s.ReducedCost(j)), math.Float64bits(s.Ray(j)), uint64(b.Cols[j]))
	}
	for i := range s.Rows() {
		out = append(out, math.Float64bits(s.Dual(i)), math.Float64bits(s.Farkas(i)), uint64(b.Rows[i]))
	}
	return out
}

// sameBits solves p with s, which has a past, and with a solver that has none, from the same basis.
func sameBits(t *testing.T, mk maker, name string, p *problem, s Solver) {
	t.Helper()
	fresh := p.load(mk)
	if err := fresh.SetBasis(s.Basis(Basis{})); err != nil {
		t.Fatal(err)
	}
	a, err := s.Solve()
	if err != nil {
		t.Fatal(err)
	}
	b, err := fresh.Solve()
	if err != nil {
		t.Fatal(err)
	}
	x, y := bits(s, a), bits(fresh, b)
	for k := range x {
		if x[k] != y[k] {
			t.Fatalf("%s: result %d of %d: %#x with a past, %#x without\n%v", name, k, len(x), x[k], y[k], p)
		}
	}
}

// TestHistoryDoesNotChangeBits compares, bit for bit, solvers with and without a past.
func TestHistoryDoesNotChangeBits(t *testing.T) { each(t, testHistoryDoesNotChangeBits) }

func testHistoryDoesNotChangeBits(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(25, 26))
	for k := range sample(200) {
		p := anything(r, 1+r.IntN(12), r.IntN(10))
		s := p.load(mk)
		for step := range 20 {
			change(r, p, s)
			if r.IntN(6) == 0 {
				if err := s.SetBasis(randomBasis(r, len(p.cost), len(p.rhs))); err != nil {
					t.Fatal(err)
				}
			}
			sameBits(t, mk, fmt.Sprintf("history %d, step %d", k, step), p, s)
		}
	}
	for k := range sample(5) {
		d := newDispatch(r)
		s := d.load(mk)
		base := len(d.rhs)
		for step := range 120 {
			d.addCut(r, 0.5, s)
			d.newInflows(r, s)
			if step%50 == 49 {
				keep := base + r.IntN(40)
				s.Truncate(keep)
				d.sense, d.rhs, d.cols, d.coefs = d.sense[:keep], d.rhs[:keep], d.cols[:keep], d.coefs[:keep]
			}
			sameBits(t, mk, fmt.Sprintf("stage %d, step %d", k, step), &d.problem, s)
		}
	}
}

// TestResetBasisPlaces checks the places ResetBasis promises.
func TestResetBasisPlaces(t *testing.T) { each(t, testResetBasisPlaces) }

func testResetBasisPlaces(t *testing.T, mk maker) {
	s := mk()
	cases := []struct {
		cost, lo, hi float64
		want         VarStatus
	}{
		{1, 0, 5, AtLower}, {-1, 0, 5, AtUpper}, {-1, 0, Inf, AtLower}, {1, -Inf, 5, AtUpper},
		{0, -9, 1, AtUpper}, {0, -1, 9, AtLower}, {3, -Inf, Inf, Free},
	}
	for _, c := range cases {
		s.AddColumn(c.cost, c.lo, c.hi)
	}
	s.AddRow(LE, 1, []int{0, 1}, []float64{1, 1})
	if err := s.SetBasis(randomBasis(rand.New(rand.NewPCG(1, 1)), len(cases), 1)); err != nil {
		t.Fatal(err)
	}
	s.ResetBasis()
	b := s.Basis(Basis{})
	for j, c := range cases {
		if b.Cols[j] != c.want {
			t.Errorf("%v: got %v", c, b.Cols[j])
		}
	}
	if b.Rows[0] != Basic {
		t.Errorf("slack is %v", b.Rows[0])
	}
}

// TestResolveDoesNotAllocate counts the allocations of a warm solve of the embedded solver.
func TestResolveDoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 28))
	p := newDispatch(r)
	s := p.load(embedded)
	for range 100 {
		p.addCut(r, 1, s)
	}
	run := func() {
		p.newInflows(r, s)
		if status, err := s.Solve(); status != Optimal || err != nil {
			t.Fatal(status, err)
		}
	}
	for range 200 {
		run()
	}
	if n := testing.AllocsPerRun(200, run); n > 0 {
		t.Errorf("%v allocations per solve", n)
	}
}
