package sddp

import (
	"context"
	"math"
	"reflect"
	"strings"
	"testing"
)

// TestGapIsClosedWhenTrainingStops compares the gap that was asked for with the true one, over all paths.
func TestGapIsClosedWhenTrainingStops(t *testing.T) {
	c := rotated(t, 4)
	const gap = 0.02
	seeds := 12
	if testing.Short() {
		seeds = 1
	}
	wrong := 0
	for seed := range seeds {
		opt := Options{Iterations: 60, Passes: 4, Openings: 3, Seed: uint64(seed + 1), Gap: gap, GapEvery: 3}
		tr := trained(t, c, opt)
		if !strings.Contains(tr.Stopped, "scenarios shows that the gap is within 2 %") {
			t.Errorf("seed %d: %d iterations, %s", seed+1, len(tr.Iterations), tr.Stopped)
			continue
		}
		plan, err := newPlanner(c, NewNoise(c, opt.Seed, opt.Openings), tr.Policy.Pool, embedded)
		if err != nil {
			t.Fatal(err)
		}
		cost := expectedCost(t, plan, make([][][]float64, c.Stages))
		if cost < tr.Policy.LowerBound*(1-1e-9) {
			t.Errorf("seed %d: expected cost %v below the lower bound %v", seed+1, cost, tr.Policy.LowerBound)
		}
		if cost > (1+gap)*tr.Policy.LowerBound {
			wrong++
			t.Logf("seed %d: true gap %.4f after %d iterations", seed+1, cost/tr.Policy.LowerBound-1, len(tr.Iterations))
		}
	}
	// The probability of one wrong stop is below 0.05, that of two in twelve trainings below 0.12.
	if wrong > seeds/12 {
		t.Errorf("%d of %d trainings stopped with a larger gap", wrong, seeds)
	}
}

// The mean of excess over all paths is the expected cost of the policy less the lower bound, and it varies
// less than the cost.
func TestExcessIsExpectedGap(t *testing.T) {
	c := rotated(t, 4)
	opt := Options{Iterations: 4, Passes: 3, Openings: 3, Seed: 2, GapEstimate: 300}
	tr := trained(t, c, opt)
	plan, err := newPlanner(c, NewNoise(c, opt.Seed, opt.Openings), tr.Policy.Pool, embedded)
	if err != nil {
		t.Fatal(err)
	}
	want := expectedCost(t, plan, make([][][]float64, c.Stages)) - tr.Policy.LowerBound
	var gaps []float64
	for path := range 27 {
		x, err := plan.excess(context.Background(), func(s int) int { return [...]int{0, path % 3, path / 3 % 3, path / 9}[s] })
		if err != nil {
			t.Fatal(err)
		}
		gaps = append(gaps, x)
	}
	e := estimateOf(gaps)
	if math.Abs(e.Mean-want) > 1e-9*tr.Policy.LowerBound || want < 1e-4*tr.Policy.LowerBound {
		t.Errorf("the mean is %v, want %v", e.Mean, want)
	}
	if got := tr.Gap; got.Samples != 300 || math.Abs(got.Mean-want) > 2*got.CI95 { // four standard errors
		t.Errorf("the estimate at the end is %v ± %v of %d paths, want about %v", got.Mean, got.CI95, got.Samples, want)
	}
	if e.Std > tr.Last().Upper.Std/4 {
		t.Errorf("the deviation is %v, that of the costs %v", e.Std, tr.Last().Upper.Std)
	}
}

// The tests of the gap are the same on any number of ranks and threads and after a resume.
func TestGapTestsDoNotDependOnRanks(t *testing.T) {
	c := rotated(t, 3)
	opt := Options{Iterations: 40, Passes: 4, Openings: 3, Seed: 1, Gap: 0.003, GapEvery: 2, GapScenarios: 400, GapEstimate: 5}
	want := trained(t, c, opt)
	if !strings.Contains(want.Stopped, "gap") || len(want.Iterations) < 4 {
		t.Fatalf("%d iterations: %s", len(want.Iterations), want.Stopped)
	}
	first := opt
	first.Checkpoint, first.Iterations = t.TempDir(), len(want.Iterations)-1
	trained(t, c, first)
	resumed := opt
	resumed.Resume = first.Checkpoint
	splits := []struct {
		ranks, threads int
		opt            Options
	}{{3, 1, opt}, {2, 1, resumed}, {2, 2, opt}}
	if testing.Short() {
		splits = splits[:2]
	}
	for _, k := range splits {
		k.opt.Threads = k.threads
		trainings, _ := onRanks(t, k.ranks, c, k.opt, 2)
		for r, got := range trainings {
			if got.Stopped != want.Stopped || got.Gap != want.Gap || !reflect.DeepEqual(plain(got.Iterations), plain(want.Iterations)) {
				t.Errorf("%d ranks × %d, rank %d: %d iterations, %s; want %d, %s", k.ranks, k.threads, r, len(got.Iterations), got.Stopped, len(want.Iterations), want.Stopped)
			}
		}
	}
}
