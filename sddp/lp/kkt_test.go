package lp

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// problem is a linear program kept apart from any solver, so that answers can be proved against
// it.
type problem struct {
	cost, lo, hi []float64
	sense        []Sense
	rhs          []float64
	cols         [][]int
	coefs        [][]float64
}

func (p *problem) column(cost, lo, hi float64) int {
	p.cost, p.lo, p.hi = append(p.cost, cost), append(p.lo, lo), append(p.hi, hi)
	return len(p.cost) - 1
}

func (p *problem) row(sense Sense, rhs float64, cols []int, coefs []float64) {
	p.sense, p.rhs = append(p.sense, sense), append(p.rhs, rhs)
	p.cols, p.coefs = append(p.cols, cols), append(p.coefs, coefs)
}

// dense adds a row given by the coefficients of all columns.
func (p *problem) dense(sense Sense, rhs float64, coefs ...float64) {
	cols := make([]int, len(coefs))
	for j := range cols {
		cols[j] = j
	}
	p.row(sense, rhs, cols, coefs)
}

func (p *problem) load(mk maker) Solver {
	s := mk()
	for j, c := range p.cost {
		s.AddColumn(c, p.lo[j], p.hi[j])
	}
	for i, b := range p.rhs {
		s.AddRow(p.sense[i], b, p.cols[i], p.coefs[i])
	}
	return s
}

func (p *problem) String() string {
	var b strings.Builder
	for j := range p.cost {
		fmt.Fprintf(&b, "column %d: cost %v in [%v, %v]\n", j, p.cost[j], p.lo[j], p.hi[j])
	}
	for i := range p.rhs {
		fmt.Fprintf(&b, "row %d: %v . %v %v %v\n", i, p.cols[i], p.coefs[i], p.sense[i], p.rhs[i])
	}
	return b.String()
}

// kktTol is the tolerance of all proofs, relative to one plus the largest term of the sum it
// applies to.
const kktTol = 1e-7

// activity returns a row's activity at x and the largest modulus among its terms.
func (p *problem) activity(i int, x []float64) (sum, size float64) {
	for k, j := range p.cols[i] {
		t := p.coefs[i][k] * x[j]
		sum += t
		size = max(size, math.Abs(t))
	}
	return sum, size
}

// transposed returns A'y and the largest modulus among the terms of each entry.
func (p *problem) transposed(y []float64) (sum, size []float64) {
	sum, size = make([]float64, len(p.cost)), make([]float64, len(p.cost))
	for i, cols := range p.cols {
		for k, j := range cols {
			t := p.coefs[i][k] * y[i]
			sum[j] += t
			size[j] = max(size[j], math.Abs(t))
		}
	}
	return sum, size
}

// feasible returns an error if x breaks a bound or a row.
func (p *problem) feasible(x []float64) error {
	for j, v := range x {
		if !(v >= p.lo[j]-kktTol*(1+math.Abs(p.lo[j]))) || !(v <= p.hi[j]+kktTol*(1+math.Abs(p.hi[j]))) {
			return fmt.Errorf("column %d is %v, want in [%v, %v]", j, v, p.lo[j], p.hi[j])
		}
	}
	for i, b := range p.rhs {
		a, size := p.activity(i, x)
		tol := kktTol * (1 + max(size, math.Abs(b)))
		if p.sense[i] != GE && !(a <= b+tol) || p.sense[i] != LE && !(a >= b-tol) {
			return fmt.Errorf("row %d is %v, want %v %v", i, a, p.sense[i], b)
		}
	}
	return nil
}

// optimal returns an error unless x, y and d prove each other optimal: both feasible, complementary
// and with equal objectives. It trusts nothing else.
func (p *problem) optimal(s Solver) error {
	x, y := make([]float64, len(p.cost)), make([]float64, len(p.rhs))
	for j := range x {
		x[j] = s.Value(j)
	}
	for i := range y {
		y[i] = s.Dual(i)
	}
	if err := p.feasible(x); err != nil {
		return err
	}
	sum, size := p.transposed(y)
	primal, dual, gapSize := 0.0, 0.0, 0.0
	for i, b := range p.rhs {
		a, _ := p.activity(i, x)
		tol := kktTol
		if p.sense[i] == LE && !(y[i] <= tol) || p.sense[i] == GE && !(y[i] >= -tol) {
			return fmt.Errorf("row %d (%v) has dual %v", i, p.sense[i], y[i])
		}
		t := y[i] * b
		dual += t
		gapSize = max(gapSize, math.Abs(t))
		_, rowSize := p.activity(i, x)
		if slack := math.Abs(b - a); slack > kktTol*(1+max(rowSize, math.Abs(b))) && math.Abs(y[i]) > kktTol {
			return fmt.Errorf("row %d has slack %v and dual %v", i, slack, y[i])
		}
	}
	for j, c := range p.cost {
		d := c - sum[j]
		tol := kktTol * (1 + max(size[j], math.Abs(c)))
		if !(math.Abs(d-s.ReducedCost(j)) <= tol) {
			return fmt.Errorf("column %d has reduced cost %v, want %v", j, s.ReducedCost(j), d)
		}
		atLower := x[j] <= p.lo[j]+kktTol*(1+math.Abs(p.lo[j]))
		atUpper := x[j] >= p.hi[j]-kktTol*(1+math.Abs(p.hi[j]))
		if d > tol && !atLower || d < -tol && !atUpper {
			return fmt.Errorf("column %d at %v in [%v, %v] has reduced cost %v", j, x[j], p.lo[j], p.hi[j], d)
		}
		t := c * x[j]
		primal += t
		gapSize = max(gapSize, math.Abs(t))
		switch {
		case d > tol:
			t = d * p.lo[j]
		case d < -tol:
			t = d * p.hi[j]
		default:
			t = d * x[j]
		}
		dual += t
		gapSize = max(gapSize, math.Abs(t))
	}
	if !(math.Abs(primal-dual) <= kktTol*(1+gapSize)) {
		return fmt.Errorf("primal objective %v, dual objective %v", primal, dual)
	}
	if !(math.Abs(primal-s.Objective()) <= kktTol*(1+gapSize)) {
		return fmt.Errorf("objective %v, want %v", s.Objective(), primal)
	}
	return nil
}

// infeasible returns an error unless the multipliers of s prove that no point satisfies p.
func (p *problem) infeasible(s Solver) error {
	y, most := make([]float64, len(p.rhs)), 0.0
	for i := range y {
		y[i] = s.Farkas(i)
		if p.sense[i] == LE && y[i] > 0 || p.sense[i] == GE && y[i] < 0 {
			return fmt.Errorf("row %d (%v) has multiplier %v", i, p.sense[i], y[i])
		}
		most = max(most, math.Abs(y[i]))
	}
	if most == 0 {
		return fmt.Errorf("no multipliers")
	}
	left, reach := 0.0, 0.0
	for i, b := range p.rhs {
		left += y[i] * b
	}
	size := make([]float64, len(p.cost)) // largest coefficients
	for i, cols := range p.cols {
		for k, j := range cols {
			size[j] = max(size[j], math.Abs(p.coefs[i][k]))
		}
	}
	sum, _ := p.transposed(y)
	for j, f := range sum {
		if math.Abs(f) <= kktTol*most*size[j] {
			continue
		}
		if f > 0 {
			reach += f * p.hi[j]
		} else {
			reach += f * p.lo[j]
		}
	}
	if !(left > reach) {
		return fmt.Errorf("the rows ask for %v, the bounds allow %v", left, reach)
	}
	return nil
}

// unbounded returns an error unless the values and the ray of s prove that the objective of p
// falls without limit.
func (p *problem) unbounded(s Solver) error {
	x, ray, most := make([]float64, len(p.cost)), make([]float64, len(p.cost)), 0.0
	for j := range x {
		x[j], ray[j] = s.Value(j), s.Ray(j)
		most = max(most, math.Abs(ray[j]))
	}
	if err := p.feasible(x); err != nil {
		return fmt.Errorf("start of the ray: %w", err)
	}
	slope := 0.0
	for j, r := range ray {
		slope += p.cost[j] * r
		if r < -kktTol*most && !math.IsInf(p.lo[j], -1) || r > kktTol*most && !math.IsInf(p.hi[j], 1) {
			return fmt.Errorf("the ray moves column %d by %v within [%v, %v]", j, r, p.lo[j], p.hi[j])
		}
	}
	if !(slope < 0) {
		return fmt.Errorf("the ray costs %v", slope)
	}
	for i := range p.rhs {
		a, _ := p.activity(i, ray)
		tol := 0.0
		for _, f := range p.coefs[i] {
			tol = max(tol, kktTol*most*math.Abs(f))
		}
		if p.sense[i] != GE && a > tol || p.sense[i] != LE && a < -tol {
			return fmt.Errorf("the ray changes row %d (%v) by %v", i, p.sense[i], a)
		}
	}
	return nil
}

// prove fails the test unless the solver's answer to p comes with a proof, and returns the answer.
func prove(t *testing.T, name string, p *problem, s Solver) Status {
	t.Helper()
	status, err := s.Solve()
	if err != nil {
		t.Fatalf("%s: solve: %v", name, err)
	}
	if err := p.proof(s, status); err != nil {
		text := p.String()
		if len(text) > 4000 {
			text = text[:4000] + "..."
		}
		t.Fatalf("%s: %v after %d iterations: %v\n%s", name, status, s.Iterations(), err, text)
	}
	return status
}

// proof returns an error unless the results of the last solve prove its status.
func (p *problem) proof(s Solver, status Status) error {
	switch status {
	case Optimal:
		return p.optimal(s)
	case Infeasible:
		return p.infeasible(s)
	case Unbounded:
		return p.unbounded(s)
	}
	return fmt.Errorf("no answer")
}
