package sddp

import (
	"context"
	"fmt"
	"math"
)

// gapLooks is how often a test of the gap looks at its scenarios, at twice as many each time.
const gapLooks = 4

// gapRisk bounds the probability that a training ends by its gap although the gap is larger.
const gapRisk = 0.05

// gapCloses tests whether the policy is expected to cost at most Gap more than the lower bound, with
// scenarios that no pass and no other test has used. It returns their number, or 0 if the test fails.
//
// A training makes many tests, and each looks several times, so that one would succeed by chance in the
// end. Each look therefore has its own level (Bonferroni): look l of test j has the level
// gapRisk/(j(j+1))/gapLooks, and the levels of any number of tests add up to no more than gapRisk.
//
// Collective: all ranks call it.
func (tr *trainer) gapCloses(ctx context.Context) (scenarios int, err error) {
	test := float64(len(tr.its) / tr.opt.GapEvery)
	quantile := math.Sqrt2 * math.Erfinv(1-2*gapRisk/(test*(test+1))/gapLooks)
	limit := tr.opt.Gap * math.Abs(tr.lower)
	var gaps []float64
	for look := range gapLooks {
		n := tr.opt.GapScenarios >> (gapLooks - 1 - look)
		more, err := tr.excesses(ctx, len(tr.its), len(gaps), n)
		if err != nil {
			return 0, err
		}
		gaps = append(gaps, more...)
		e := estimateOf(gaps)
		switch upper := e.Mean + studentQuantile(quantile, n-1)*e.Std/math.Sqrt(float64(n)); {
		case upper <= limit:
			return n, nil
		case e.Mean > limit:
			return 0, nil // more scenarios would hardly help
		}
	}
	return 0, nil
}

// estimateGap returns how much the policy is expected to cost more than the lower bound, from paths that no test
// has used.
//
// Collective: all ranks call it.
func (tr *trainer) estimateGap(ctx context.Context) (Estimate, error) {
	gaps, err := tr.excesses(ctx, maxIterations+len(tr.its), 0, tr.opt.GapEstimate)
	if err != nil {
		return Estimate{}, err
	}
	return estimateOf(gaps), nil
}

// excesses returns the excesses of the paths from first to n of a test, on every rank.
func (tr *trainer) excesses(ctx context.Context, test, first, n int) ([]float64, error) {
	all := make([]float64, n-first)
	lo, hi := tr.block(tr.rank, len(all))
	failed := tr.timed(func() error {
		return tr.each(hi-lo, func(worker, i int) (err error) {
			scenario := first + lo + i
			all[lo+i], err = tr.planners[worker].excess(ctx, func(t int) int { return tr.noise.tested(test, scenario, t) })
			return err
		})
	})
	if err := tr.share("test of the gap", all, len(all), 1, failed); err != nil {
		return nil, fmt.Errorf("test of the gap after iteration %d: %w", len(tr.its), err)
	}
	return all, nil
}

// excess simulates a path and returns a number whose mean over the paths is the expected cost of the policy
// less the optimum of the first stage, the lower bound.
//
// With the optimum Q of a stage and its theta, the cost of a stage is Q - theta. So a path costs the first
// Q and, for each later stage, its Q less the theta before. excess takes the mean of Q over all openings,
// given the storage, in the place of Q. That has the same mean (conditional Monte Carlo: Hammersley 1956)
// and varies by a small part of what costs do: each term is the error of the cuts at that storage.
func (p *planner) excess(ctx context.Context, opening func(stage int) int) (float64, error) {
	total, theta, worth := 0.0, 0.0, 1.0
	p.initial()
	for t, s := range p.stages {
		if err := p.begin(ctx, s); err != nil {
			return 0, err
		}
		// The path's opening first, from the canonical basis, as in every simulation.
		n, taken := p.noise.Openings(t), opening(t)
		mean, next := 0.0, theta
		for i := range n {
			k := (taken + i) % n
			s.set(p.before, p.noise.Inflow(t, k))
			if err := s.solve(p.pool); err != nil {
				return 0, err
			}
			mean += p.noise.Weight(t, k) * s.lp.Objective()
			if i == 0 {
				next = s.after()
				copy(p.after, s.end(p.c))
			}
		}
		if t > 0 {
			total += worth * (mean - theta)
		}
		theta = next
		worth *= s.discount
		copy(p.before, p.after)
	}
	return total, nil
}
