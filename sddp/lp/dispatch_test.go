package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// dispatch is a stage problem of hydrothermal scheduling, in the shape and with the magnitudes
// that a stochastic dual dynamic program solves tens of thousands of times: reservoirs with
// turbined and spilt flows, thermal plants, interchanges and load cuts at 730 hours a month, and a
// future cost bounded from below by cuts.
type dispatch struct {
	problem
	volume []int // columns of the final volumes
	water  []int // rows of the water balances
	theta  int
}

const (
	hours      = 730.0
	reservoirs = 4
	nodes      = 5
)

// newDispatch draws a stage problem of about 150 columns and 9 rows, without cuts.
func newDispatch(r *rand.Rand) *dispatch {
	p := &dispatch{}
	balance := make([][]int, nodes)
	signs := make([][]float64, nodes)
	add := func(node int, sign, cost, hi float64) int {
		j := p.column(cost, 0, hi)
		balance[node], signs[node] = append(balance[node], j), append(signs[node], sign)
		return j
	}
	var turbined, spilt []int
	for k := range reservoirs {
		p.volume = append(p.volume, p.column(0, 0, 2e4+1.8e5*r.Float64()))
		turbined = append(turbined, add(k, 1, 0, 2e4+2e4*r.Float64()))
		spilt = append(spilt, p.column(0.01, 0, Inf))
	}
	for node := range nodes {
		for range 14 + r.IntN(8) {
			add(node, 1, hours*(10+490*r.Float64()), 50+950*r.Float64())
		}
		for level := range 4 { // load cut in steps of rising cost
			add(node, 1, hours*(500+1000*float64(level)/3), 1500*float64(1+level))
		}
	}
	for a := range nodes {
		for b := range nodes {
			if a == b {
				continue
			}
			j := add(a, -1, 0.01, 3000*float64(1+r.IntN(3)))
			balance[b], signs[b] = append(balance[b], j), append(signs[b], 1)
		}
	}
	p.theta = p.column(1, 0, Inf)
	for node := range nodes {
		p.row(EQ, 5000+15000*r.Float64(), balance[node], signs[node])
	}
	for k := range reservoirs {
		p.water = append(p.water, len(p.rhs))
		p.row(EQ, 3e4+1e5*r.Float64(), []int{p.volume[k], turbined[k], spilt[k]}, []float64{1, 1, 1})
	}
	return p
}

// cut draws a cut: the tangent, at a random state, of a convex quadratic future cost that falls
// from about 1e10 as the reservoirs fill.
func (p *dispatch) cut(r *rand.Rand, spread float64) (rhs float64, cols []int, coefs []float64) {
	cols, coefs = []int{p.theta}, []float64{1}
	value := 1e8
	for _, j := range p.volume {
		full := p.hi[j]
		v := full * (0.5 + spread*(r.Float64()-0.5))
		gap := 1 - v/full
		price := 1e6 * gap * (0.1 + 0.9*gap)
		value += 3e4 * full * gap * gap
		cols, coefs = append(cols, j), append(coefs, price)
		value += price * v
	}
	return value, cols, coefs
}

func (p *dispatch) addCut(r *rand.Rand, spread float64, s Solver) {
	rhs, cols, coefs := p.cut(r, spread)
	p.row(GE, rhs, cols, coefs)
	if s != nil {
		s.AddRow(GE, rhs, cols, coefs)
	}
}

// newInflows changes the right-hand sides of the water balances of p and of s.
func (p *dispatch) newInflows(r *rand.Rand, s Solver) {
	for _, i := range p.water {
		p.rhs[i] = 2e4 + 1.6e5*r.Float64()*r.Float64()
		s.SetRHS(i, p.rhs[i])
	}
}

// TestDispatchAnswersAreProved follows stage problems through what a stochastic dual dynamic program does to
// them, with every answer proved: new inflows, cuts one at a time, nearly parallel cuts, cuts
// dropped and loaded again.
func TestDispatchAnswersAreProved(t *testing.T) { each(t, testDispatchAnswersAreProved) }

func testDispatchAnswersAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(5, 6))
	spreads := []float64{1e-3, 0, 1, 0.3, 1e-6, 1}
	if testing.Short() {
		spreads = spreads[:2]
	}
	for k, spread := range spreads {
		p := newDispatch(r)
		s := p.load(mk)
		base := len(p.rhs)
		for c := range 400 {
			p.addCut(r, spread, s)
			p.newInflows(r, s)
			if c%4 == 0 || c < 20 {
				name := fmt.Sprintf("stage %d with %d cuts", k, c+1)
				if status := prove(t, name, &p.problem, s); status != Optimal {
					t.Fatalf("%s: got %v", name, status)
				}
			}
		}
		cold := p.load(mk)
		prove(t, "cold start", &p.problem, cold)
		prove(t, "warm start", &p.problem, s)
		if a, b := s.Objective(), cold.Objective(); math.Abs(a-b) > 1e-9*math.Abs(b) {
			t.Errorf("stage %d: warm start %v, cold start %v", k, a, b)
		}
		t.Logf("stage %d: %d iterations cold", k, cold.Iterations())
		s.Truncate(base + 100)
		p.sense, p.rhs, p.cols, p.coefs = p.sense[:base+100], p.rhs[:base+100], p.cols[:base+100], p.coefs[:base+100]
		prove(t, "truncated", &p.problem, s)
		for range 50 {
			p.addCut(r, spread, s)
			p.newInflows(r, s)
			prove(t, "grown again", &p.problem, s)
		}
	}
}

// benchEach runs a benchmark with every solver there is.
func benchEach(b *testing.B, bench func(b *testing.B, mk maker)) {
	for _, kind := range []string{Embedded, CLP} {
		b.Run(kind, func(b *testing.B) { bench(b, open(b, kind)) })
	}
}

// solved fails the benchmark unless the program has an optimum.
func solved(b *testing.B, s Solver) {
	b.Helper()
	if status, err := s.Solve(); status != Optimal || err != nil {
		b.Fatal(status, err)
	}
}

// BenchmarkDispatchResolve measures a solve with new inflows, warm from the last basis.
func BenchmarkDispatchResolve(b *testing.B) {
	for _, cuts := range []int{0, 40, 400} {
		b.Run(fmt.Sprintf("cuts=%d", cuts), func(b *testing.B) {
			benchEach(b, func(b *testing.B, mk maker) {
				r := rand.New(rand.NewPCG(7, 8))
				p := newDispatch(r)
				s := p.load(mk)
				for range cuts {
					p.addCut(r, 1, s)
				}
				solved(b, s)
				b.ReportAllocs()
				iterations := 0
				for b.Loop() {
					p.newInflows(r, s)
					solved(b, s)
					iterations += s.Iterations()
				}
				b.ReportMetric(float64(iterations)/float64(b.N), "iterations/op")
			})
		})
	}
}

// BenchmarkDispatchCut measures a solve after one more cut, the oldest of them dropped at 400.
func BenchmarkDispatchCut(b *testing.B) {
	benchEach(b, func(b *testing.B, mk maker) {
		r := rand.New(rand.NewPCG(9, 10))
		p := newDispatch(r)
		s := p.load(mk)
		base := s.Rows()
		b.ReportAllocs()
		for b.Loop() {
			if s.Rows() == base+400 {
				s.Truncate(base)
			}
			rhs, cols, coefs := p.cut(r, 1)
			s.AddRow(GE, rhs, cols, coefs)
			solved(b, s)
		}
	})
}

// BenchmarkDispatchCold measures a solve from the slack basis.
func BenchmarkDispatchCold(b *testing.B) {
	benchEach(b, func(b *testing.B, mk maker) {
		r := rand.New(rand.NewPCG(7, 8))
		p := newDispatch(r)
		s := p.load(mk)
		for range 400 {
			p.addCut(r, 1, s)
		}
		b.ReportAllocs()
		for b.Loop() {
			s.ResetBasis()
			solved(b, s)
		}
		b.ReportMetric(float64(s.Iterations()), "iterations/op")
	})
}
