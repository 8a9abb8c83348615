package lp

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// whole returns a whole number in [-k, k], so that ties and degenerate vertices are common.
func whole(r *rand.Rand, k int) float64 { return float64(r.IntN(2*k+1) - k) }

// anything returns a random program: all senses, all kinds of bounds, empty rows and columns, duplicate
// rows, zero right-hand sides. It may be optimal, infeasible or unbounded.
func anything(r *rand.Rand, n, m int) *problem {
	p := &problem{}
	density := 0.2 + 0.8*r.Float64()
	onlyWhole := r.IntN(2) == 0
	number := func(k int) float64 {
		if onlyWhole {
			return whole(r, k)
		}
		return float64(k) * r.NormFloat64()
	}
	for range n {
		lo, hi := 0.0, Inf
		switch r.IntN(8) {
		case 0:
			lo, hi = -Inf, Inf
		case 1:
			lo, hi = -Inf, number(5)
		case 2, 3, 4:
			lo = number(3)
			hi = lo + float64(r.IntN(6))
		case 5:
			lo = number(3)
			hi = lo
		}
		p.column(number(5), lo, hi)
	}
	for i := range m {
		if i > 0 && r.IntN(10) == 0 {
			k := r.IntN(i)
			p.row(p.sense[k], p.rhs[k], p.cols[k], p.coefs[k])
			continue
		}
		var cols []int
		var coefs []float64
		for j := range n {
			if r.Float64() < density {
				cols, coefs = append(cols, j), append(coefs, number(4))
			}
		}
		rhs := 0.0
		if r.IntN(3) > 0 {
			rhs = number(10)
		}
		p.row(Sense(r.IntN(3)), rhs, cols, coefs)
	}
	return p
}

// solvable returns a random program that has an optimum by construction: the rows are drawn around
// a point, the costs around row multipliers of the right signs.
func solvable(r *rand.Rand, n, m int, degenerate bool) *problem {
	p := &problem{}
	x, d := make([]float64, n), make([]float64, n)
	for j := range n {
		lo, hi := -Inf, Inf
		x[j] = whole(r, 10)
		switch r.IntN(5) {
		case 0: // free
		case 1:
			lo = x[j]
			d[j] = float64(r.IntN(5))
		case 2:
			hi = x[j]
			d[j] = -float64(r.IntN(5))
		case 3:
			lo, hi = x[j]-float64(r.IntN(4)), x[j]+float64(r.IntN(4))
		case 4:
			lo, hi = x[j], x[j]+float64(r.IntN(4))
			d[j] = float64(r.IntN(3))
		}
		p.column(d[j], lo, hi)
	}
	for range m {
		var cols []int
		var coefs []float64
		act := 0.0
		for j := range n {
			if degenerate && r.IntN(3) > 0 {
				continue
			}
			a := r.NormFloat64()
			if degenerate {
				a = whole(r, 1)
			}
			cols, coefs = append(cols, j), append(coefs, a)
			act += a * x[j]
		}
		sense := Sense(r.IntN(3))
		y := float64(r.IntN(4))
		switch {
		case sense == LE:
			y = -y
		case sense == EQ && r.IntN(2) == 0:
			y = -y
		}
		if y == 0 || !degenerate && r.IntN(2) == 0 {
			y = 0
			act += float64(r.IntN(5)) * float64(1-int(sense))
		}
		for k, j := range cols {
			p.cost[j] += y * coefs[k]
		}
		p.row(sense, act, cols, coefs)
	}
	return p
}

func TestRandomAnswersAreProved(t *testing.T) { each(t, testRandomAnswersAreProved) }

func testRandomAnswersAreProved(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[Status]int{}
	for k := range sample(6000) {
		n, m := r.IntN(13), r.IntN(11)
		if k%10 == 0 {
			n, m = 10+r.IntN(40), 5+r.IntN(40)
		}
		p := anything(r, n, m)
		seen[prove(t, fmt.Sprintf("program %d", k), p, p.load(mk))]++
	}
	for _, status := range []Status{Optimal, Infeasible, Unbounded} {
		if seen[status] < sample(100) {
			t.Errorf("only %d programs are %v: the generator is too narrow", seen[status], status)
		}
	}
}

func TestSolvableProgramsAreOptimal(t *testing.T) { each(t, testSolvableProgramsAreOptimal) }

func testSolvableProgramsAreOptimal(t *testing.T, mk maker) {
	r := rand.New(rand.NewPCG(3, 4))
	for k := range sample(3000) {
		n, m := 1+r.IntN(20), r.IntN(20)
		if k%20 == 0 {
			n, m = 20+r.IntN(80), 20+r.IntN(60)
		}
		p := solvable(r, n, m, k%2 == 0)
		if status := prove(t, fmt.Sprintf("program %d", k), p, p.load(mk)); status != Optimal {
			t.Fatalf("program %d has an optimum, got %v\n%v", k, status, p)
		}
	}
}
