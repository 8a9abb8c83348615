package lp

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// newSystem draws a stage problem like newDispatch's, of any size and as sparse as real ones: per
// bus three thermal plants, one reservoir in a chain of such, load cut, and lines to the next bus
// and to one other. It has 2 rows and 11 columns per bus, and a column for the future cost.
func newSystem(r *rand.Rand, buses int) *dispatch {
	p := &dispatch{}
	balance := make([][]int, buses)
	signs := make([][]float64, buses)
	add := func(bus int, sign, cost, hi float64) int {
		j := p.column(cost, 0, hi)
		balance[bus], signs[bus] = append(balance[bus], j), append(signs[bus], sign)
		return j
	}
	var turbined, spilt []int
	for bus := range buses {
		p.volume = append(p.volume, p.column(0, 0, 2e3+1.8e4*r.Float64()))
		turbined = append(turbined, add(bus, 1, 0, 2e3+2e3*r.Float64()))
		spilt = append(spilt, p.column(0.01, 0, Inf))
		for range 3 {
			add(bus, 1, hours*(10+490*r.Float64()), 200+800*r.Float64())
		}
		add(bus, 1, hours*1000, Inf)
	}
	for bus := range buses {
		for _, to := range []int{(bus + 1) % buses, r.IntN(buses)} {
			for _, way := range [][2]int{{bus, to}, {to, bus}} {
				j := add(way[0], -1, 0.01, 500*float64(1+r.IntN(3)))
				balance[way[1]], signs[way[1]] = append(balance[way[1]], j), append(signs[way[1]], 1)
			}
		}
	}
	p.theta = p.column(1, 0, Inf)
	for bus := range buses {
		p.row(EQ, 1000+2000*r.Float64(), balance[bus], signs[bus])
	}
	for k := range buses {
		p.water = append(p.water, len(p.rhs))
		cols, coefs := []int{p.volume[k], turbined[k], spilt[k]}, []float64{1, 1, 1}
		if k%5 > 0 { // what leaves the reservoir above arrives here
			cols, coefs = append(cols, turbined[k-1], spilt[k-1]), append(coefs, -1, -1)
		}
		p.row(EQ, 1000+4000*r.Float64(), cols, coefs)
	}
	return p
}

// inflows changes the right-hand sides of the water balances of p and of every s.
func (p *dispatch) inflows(r *rand.Rand, solvers ...Solver) {
	for _, i := range p.water {
		p.rhs[i] = 500 + 5000*r.Float64()*r.Float64()
		for _, s := range solvers {
			s.SetRHS(i, p.rhs[i])
		}
	}
}

// TestSolversAgree proves the answers of both solvers to systems larger than the embedded one is
// meant for, and compares their optima, cold and warm.
func TestSolversAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	sizes := []int{20, 100, 200}
	if testing.Short() {
		sizes = sizes[:2]
	}
	for _, buses := range sizes {
		p := newSystem(r, buses)
		for range 20 {
			p.addCut(r, 1, nil)
		}
		a, b := p.load(embedded), p.load(open(t, CLP))
		for step := range 3 {
			name := fmt.Sprintf("%d rows, step %d", len(p.rhs), step)
			if x, y := prove(t, name+", embedded", &p.problem, a), prove(t, name+", clp", &p.problem, b); x != Optimal || y != Optimal {
				t.Fatalf("%s: embedded %v, clp %v", name, x, y)
			}
			if x, y := a.Objective(), b.Objective(); math.Abs(x-y) > 1e-9*math.Abs(x) {
				t.Errorf("%s: embedded %v, clp %v", name, x, y)
			}
			p.inflows(r, a, b)
		}
	}
}

// BenchmarkSystem measures solves with new inflows, from the last basis, and from that of the
// slacks.
func BenchmarkSystem(b *testing.B) {
	for _, buses := range []int{10, 25, 50, 75, 100, 150, 250, 500, 1000} {
		for _, start := range []string{"warm", "cold"} {
			b.Run(fmt.Sprintf("rows=%d/%s", 2*buses, start), func(b *testing.B) {
				benchEach(b, func(b *testing.B, mk maker) {
					r := rand.New(rand.NewPCG(53, 54))
					p := newSystem(r, buses)
					s := p.load(mk)
					solved(b, s)
					b.ReportAllocs()
					iterations := 0
					for b.Loop() {
						p.inflows(r, s)
						if start == "cold" {
							s.ResetBasis()
						}
						solved(b, s)
						iterations += s.Iterations()
					}
					b.ReportMetric(float64(iterations)/float64(b.N), "iterations/op")
				})
			})
		}
	}
}
