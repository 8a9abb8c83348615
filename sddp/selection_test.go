package sddp

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

// In one dimension: which cuts are highest somewhere is seen by hand.
func TestSelectionKeepsHighestCutOfEachPoint(t *testing.T) {
	pool := newPool(2, 1)
	s := newSelection(2, 1)
	idle := func() string {
		text := ""
		for i := range pool.Len(0) {
			text += map[bool]string{true: "-", false: "x"}[s.isIdle(0, i)]
		}
		return text
	}
	for _, k := range []struct {
		name         string
		cuts, points []float64
		want         string
	}{
		{"no cut", nil, []float64{5}, ""},
		{"one cut", []float64{10, -1}, nil, "x"},
		{"a higher one", []float64{11, -1}, nil, "-x"},
		{"an equal one", []float64{6, 0}, nil, "-x-"},
		{"higher at a new point", []float64{20, -4}, []float64{1}, "-x-x"},
		{"an old one is highest at a new point", nil, []float64{8}, "-xxx"},
		{"below the others", []float64{1, 0}, nil, "-xxx-"},
	} {
		pool.add(0, k.cuts)
		s.add(pool, 0, k.points)
		if got := idle(); got != k.want {
			t.Errorf("%s: got %q, want %q", k.name, got, k.want)
		}
	}
}

// The selection depends on the cuts and points alone, not on the order in which they came.
func TestSelectionDoesNotDependOnOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pool := newPool(2, 3)
	step := newSelection(2, 3)
	var points []float64
	for range 20 {
		var cuts, some []float64
		for range rng.IntN(4) {
			cuts = append(cuts, rng.Float64(), -rng.Float64(), -rng.Float64(), -rng.Float64())
		}
		for range 3 * rng.IntN(5) {
			some = append(some, rng.Float64())
		}
		pool.add(0, cuts)
		step.add(pool, 0, some)
		points = append(points, some...)
	}
	whole := newSelection(2, 3)
	whole.add(pool, 0, points)
	if !reflect.DeepEqual(step, whole) {
		t.Errorf("in steps %+v, at once %+v", step, whole)
	}
}

// With cut selection the bound still rises to the optimum of the deterministic equivalent.
func TestCutSelectionReachesDeterministicEquivalent(t *testing.T) {
	for n := range 6 {
		rng := rand.New(rand.NewPCG(uint64(n), 81))
		c := randomCase(rng)
		opt := Options{Iterations: 80, Passes: 6, Openings: 3, Seed: uint64(n), CutSelection: true}
		want := optimum(t, c, NewNoise(c, opt.Seed, opt.Openings))
		tr := trained(t, c, opt)
		if got := tr.Policy.LowerBound; !within(got, want) {
			t.Errorf("case %d: the lower bound ends at %.10g, the optimum is %.10g", n, got, want)
		}
		if kept, all := tr.Policy.Pool.Total(), tr.Last().Cuts; kept > all {
			t.Errorf("case %d: the policy has %d cuts of %d", n, kept, all)
		}
	}
}

// The policy of a long training has only a part of the cuts, and its bound is that of the training.
func TestCutSelectionMakesPolicySmaller(t *testing.T) {
	c := rotated(t, 6)
	opt := Options{Iterations: 30, Passes: 4, Openings: 4, Seed: 3, CutSelection: true}
	tr := trained(t, c, opt)
	if kept, all := tr.Policy.Pool.Total(), tr.Last().Cuts; kept > 3*all/4 {
		t.Errorf("the policy has %d cuts of %d", kept, all)
	}
	p, err := newPlanner(c, NewNoise(c, opt.Seed, opt.Openings), tr.Policy.Pool, embedded)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.lowerBound(); err != nil || !within(got, tr.Policy.LowerBound) {
		t.Errorf("the bound of the policy is %v (%v), of the training %v", got, err, tr.Policy.LowerBound)
	}
}

// A checkpoint has the trial points of its iterations.
func TestCheckpointHasTrialPointsOfSelection(t *testing.T) {
	o, its, pool := smallCheckpoint()
	o.selects = true
	pool.selection = newSelection(o.stages, o.states)
	for s := range o.stages - 1 {
		pool.selection.add(pool, s, []float64{1, 2, 3, float64(4 + s), 5, 6}) // of a third iteration too
	}
	data := encoded(t, o, its, pool)
	r, err := readBytes(data)
	if err != nil {
		t.Fatal(err)
	}
	if r.origin != o {
		t.Errorf("got %+v, want %+v", r.origin, o)
	}
	got := make([]float64, 3)
	if err := r.trials(1, 1, got); err != nil || fmt.Sprint(got) != "[2 3 5]" {
		t.Errorf("got %v (%v), want the points 2 to 4 of stage 2", got, err)
	}
	cut := make([]float64, 2)
	alpha, beta := pool.Cut(1, 2)
	if err := r.cuts(1, 4, cut); err != nil || !sameBits(cut, []float64{alpha, beta[0]}) {
		t.Errorf("got cut %v (%v), want %v %v", cut, err, alpha, beta)
	}
	if _, err := readCheckpoint("file", bytes.NewReader(data), int64(len(data)-8)); err == nil {
		t.Error("a file without its end was read")
	}
}
