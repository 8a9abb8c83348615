package sddp

import (
	"math"
	"testing"
)

func TestPoolTakesOnlyNewCuts(t *testing.T) {
	pool := newPool(3, 2)
	most := []float64{100, 10}
	pool.extend(0, make([]float64, 0, 3))
	copy(pool.grow(0, 3), []float64{50, -1, 0})
	pool.extend(0, make([]float64, 0, 3))
	copy(pool.grow(0, 3), []float64{60, -1, -2})
	for _, k := range []struct {
		name string
		cuts []float64
		want []float64
	}{
		{"none", nil, nil},
		{"equal to the first and to the second", []float64{50, -1, 0, 60, -1, -2}, nil},
		{"equal but for rounding", []float64{50 + 1e-13, -1, 0, 50, math.Nextafter(-1, 0), 0, 60, -1, -2 + 1e-15}, nil},
		{"nowhere higher", []float64{49, -1, 0, 50, -1.5, -1}, nil},
		{"higher at full storage only", []float64{50, -1 + 1e-9, 0}, []float64{50, -1 + 1e-9, 0}},
		{"higher at empty storage only", []float64{60.0001, -2, -2}, []float64{60.0001, -2, -2}},
		{"new, but twice", []float64{0, 1, 0, 0, 1, 0, 60, -1, -2, 0, 0, 9}, []float64{0, 1, 0, 0, 0, 9}},
	} {
		if got := pool.novel(0, append([]float64(nil), k.cuts...), make([]float64, len(most)), most); len(got) != len(k.want) || !sameBits(got, k.want) {
			t.Errorf("%s: %v, want %v", k.name, got, k.want)
		}
	}
	if got := pool.novel(1, []float64{1, 2, 3}, make([]float64, len(most)), most); len(got) != 3 {
		t.Errorf("of a stage without cuts: %v, want all", got)
	}
}

// A training from September reaches the same duals again and again. Its pool has no cut twice.
func TestTrainingKeepsNoCutTwice(t *testing.T) {
	c := rotated(t, 4)
	opt := Options{Iterations: 12, Passes: 8, Openings: 5, Seed: 42}
	tr := trained(t, c, opt)
	all := opt.Iterations * opt.Passes * (c.Stages - 1)
	pool := tr.Policy.Pool
	if got := pool.Total(); got != tr.Last().Cuts || got > all*3/4 {
		t.Errorf("%d cuts of %d, the last iteration says %d", got, all, tr.Last().Cuts)
	}
	for s := range pool.Stages() {
		one := newPool(c.Stages, len(c.Reservoirs))
		for i := range pool.Len(s) {
			alpha, beta := pool.Cut(s, i)
			cut := append([]float64{alpha}, beta...)
			if len(one.novel(s, cut, c.minState(), c.maxState())) == 0 {
				t.Errorf("stage %d: one cut before covers cut %d", s+1, i)
			}
			one.add(s, cut)
		}
	}
}

// A cut that exceeds theta by rounding of its terms is not violated, however small theta is.
func TestRoundingDoesNotViolateCuts(t *testing.T) {
	p := newPool(2, 1)
	p.add(0, []float64{1e10, -1e5})
	held := make([]bool, 1)
	for _, k := range []struct {
		v    float64
		want int
	}{{1e5, -1}, {1e5 - 1e-9, -1}, {1e5 - 1e-6, 0}} { // above theta by 0, 1e-4 and 0.1
		if got := p.mostViolated(0, []float64{k.v}, 0, 1e-9, held); got != k.want {
			t.Errorf("at %v: cut %d, want %d", k.v, got, k.want)
		}
	}
}
