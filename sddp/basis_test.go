package sddp

import (
	"context"
	"math"
	"testing"
)

// slopesAt solves a stage from each of the given storages, in the given order, and returns the
// derivatives by storage at each, and the optima. With canonical, every solve starts from the canonical
// basis, otherwise from the final basis of the previous one.
func slopesAt(t *testing.T, s *stage, pool *Pool, inflow []float64, points [][]float64, order []int, canonical bool) (slopes [][]float64, optima []float64) {
	t.Helper()
	if err := s.restart(); err != nil {
		t.Fatal(err)
	}
	slopes, optima = make([][]float64, len(points)), make([]float64, len(points))
	for _, i := range order {
		if canonical {
			if err := s.restart(); err != nil {
				t.Fatal(err)
			}
		}
		s.set(points[i], inflow)
		if err := s.solve(pool); err != nil {
			t.Fatal(err)
		}
		slopes[i] = make([]float64, len(points[i]))
		s.slope(slopes[i], 1)
		optima[i] = s.lp.Objective()
	}
	return slopes, optima
}

// TestOnlyCanonicalBasisIsIndependentOfOrder is the experiment of docs/adr/0004-canonical-basis.md. Solving the same
// programs in another order, each from the final basis of the previous one, gives the same optima but
// duals with other bits, sometimes those of another vertex, and so other cuts. From the canonical basis
// it gives the same bits.
func TestOnlyCanonicalBasisIsIndependentOfOrder(t *testing.T) {
	certain := readShipped(t, "brazil4")
	for r := range certain.Reservoirs {
		for p := range certain.Periods {
			certain.Reservoirs[r].InflowStd[p] = 0
		}
	}
	for _, k := range []struct {
		name       string
		c          *Case
		opt        Options
		wantVertex bool // duals of another vertex must occur
	}{
		{"brazil4", readShipped(t, "brazil4"), Options{Iterations: 10, Passes: 4, Openings: 3, Seed: 2}, false},
		// Without uncertainty the policy ends where the cost-to-go has its kinks.
		{"without uncertainty", certain, Options{Iterations: 20, Passes: 1, Openings: 1}, true},
	} {
		t.Run(k.name, func(t *testing.T) {
			if testing.Short() && !k.wantVertex {
				t.Skip("left out with -short: duals with random inflows; make test-all runs it")
			}
			noise := NewNoise(k.c, k.opt.Seed, k.opt.Openings)
			p, err := newPlanner(k.c, noise, trained(t, k.c, k.opt).Policy.Pool, embedded)
			if err != nil {
				t.Fatal(err)
			}
			points := pathPoints(t, p, 6)
			up, down := make([]int, len(points)), make([]int, len(points))
			for i := range points {
				up[i], down[i] = i, len(points)-1-i
			}
			bits, vertices, programs := 0, 0, 0
			for s := 1; s < k.c.Stages; s++ {
				for o := range noise.Openings(s) {
					inflow := noise.Inflow(s, o)
					a, va := slopesAt(t, p.stages[s], p.pool, inflow, points, up, false)
					b, vb := slopesAt(t, p.stages[s], p.pool, inflow, points, down, false)
					x, _ := slopesAt(t, p.stages[s], p.pool, inflow, points, up, true)
					y, _ := slopesAt(t, p.stages[s], p.pool, inflow, points, down, true)
					for i := range points {
						programs++
						if !within(va[i], vb[i]) {
							t.Errorf("stage %d, point %d: the optimum is %v in one order, %v in the other", s+1, i, va[i], vb[i])
						}
						if !sameBits(x[i], y[i]) {
							t.Errorf("stage %d, point %d: from the canonical basis the slopes are %v in one order, %v in the other", s+1, i, x[i], y[i])
						}
						if !sameBits(a[i], b[i]) {
							bits++
						}
						if !near(a[i], b[i]) {
							vertices++
						}
					}
				}
			}
			t.Logf("in reverse order, from the previous basis: %d of %d programs have duals with other bits, %d of them those of another vertex", bits, programs, vertices)
			if bits == 0 || k.wantVertex && vertices == 0 {
				t.Error("the order does not matter for these programs: the experiment shows nothing")
			}
		})
	}
}

// pathPoints returns the storages at the end of the stages on a few paths.
func pathPoints(t *testing.T, p *planner, paths int) (points [][]float64) {
	t.Helper()
	for scenario := range paths {
		_, err := p.forward(context.Background(), func(s int) []float64 {
			return p.noise.Inflow(s, p.noise.path(scenario, s))
		}, func(s *stage) {
			points = append(points, append([]float64(nil), s.end(p.c)...))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return points
}

func sameBits(a, b []float64) bool {
	for i := range a {
		if math.Float64bits(a[i]) != math.Float64bits(b[i]) {
			return false
		}
	}
	return true
}

// near reports whether slopes differ by no more than rounding does.
func near(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-6*math.Max(1, math.Abs(a[i])) {
			return false
		}
	}
	return true
}
