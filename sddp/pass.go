package sddp

import (
	"context"
	"math"

	"github.com/cohort-hpc/cohort/sddp/lp"
)

// planner is the state of one worker: the programs of all stages, and the noise and cuts that all
// workers share.
type planner struct {
	c      *Case
	noise  *Noise
	pool   *Pool
	stages []*stage
	before []float64 // storage at the start of a stage in a forward pass
	after  []float64 // storage at its end, while before is still needed

	dearest float64 // the largest cost of a MW over a stage
}

// newPlanner creates the programs of all stages.
func newPlanner(c *Case, noise *Noise, pool *Pool, newSolver func() lp.Solver) (*planner, error) {
	stages, err := newStages(c, newSolver)
	if err != nil {
		return nil, err
	}
	p := &planner{c: c, noise: noise, pool: pool, stages: stages, before: make([]float64, len(c.Reservoirs))}
	p.after = make([]float64, len(c.Reservoirs))
	p.dearest = max(c.DeficitCost, c.SpillCost)
	for _, g := range c.Thermals {
		p.dearest = max(p.dearest, g.CostPerMWh)
	}
	p.dearest *= c.HoursPerStage
	return p, nil
}

// solves returns the number of linear programs solved so far.
func (p *planner) solves() int64 {
	n := 0
	for _, s := range p.stages {
		n += s.solves
	}
	return int64(n)
}

// initial sets before to the storage at the start of the horizon.
func (p *planner) initial() {
	for r, res := range p.c.Reservoirs {
		p.before[r] = res.InitialStorage
	}
}

// forward simulates one path through the stages with the inflows that inflow returns, and passes each
// solved stage to seen. It returns the cost of the path.
func (p *planner) forward(ctx context.Context, inflow func(stage int) []float64, seen func(s *stage)) (float64, error) {
	total := 0.0
	p.initial()
	for t, s := range p.stages {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if err := s.restart(); err != nil {
			return 0, err
		}
		s.set(p.before, inflow(t))
		if err := s.solve(p.pool); err != nil {
			return 0, err
		}
		total += s.cost()
		if seen != nil {
			seen(s)
		}
		copy(p.before, s.end(p.c))
	}
	return total, nil
}

// backward computes the cut of stage t at a trial point, the storage at the end of the stage. The cut
// is the mean, over the openings of the next stage, of the optimum there and its derivatives.
// backward writes alpha and beta to cut.
//
// The first opening starts from the canonical basis, each later one from the final basis of the one
// before it, with the same cuts as rows. The cut therefore depends on the trial point and the pool
// only, not on what this worker solved before.
func (p *planner) backward(ctx context.Context, t int, trial, cut []float64) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	next := p.stages[t+1]
	if err := next.restart(); err != nil {
		return err
	}
	clear(cut)
	for k := range p.noise.Openings(t + 1) {
		next.set(trial, p.noise.Inflow(t+1, k))
		if err := next.solve(p.pool); err != nil {
			return err
		}
		weight := p.noise.Weight(t+1, k)
		cut[0] += weight * next.lp.Objective()
		next.slope(cut[1:], weight)
	}
	for r, b := range cut[1:] {
		cut[0] -= b * trial[r]
	}
	p.clean(cut)
	return nil
}

// cutNoise bounds the slopes that count as rounded zeros, relative to the largest cost of a MW. If they
// stayed, the coefficients of a program would spread over thirty decades.
const cutNoise = 1e-11

// clean replaces slopes that are rounding errors by zero. It lowers alpha by the most that this can
// raise the cut, so that the cut rises nowhere.
func (p *planner) clean(cut []float64) {
	for r, b := range cut[1:] {
		if b == 0 || math.Abs(b) > cutNoise*p.dearest {
			continue
		}
		cut[1+r] = 0
		cut[0] += min(b, 0) * p.c.Reservoirs[r].MaxStorage
	}
}

// lowerBound returns the expected optimum of the first stage with the current cuts. No policy costs less
// in expectation.
func (p *planner) lowerBound() (bound float64, err error) {
	first := p.stages[0]
	if err := first.restart(); err != nil {
		return 0, err
	}
	p.initial()
	for k := range p.noise.Openings(0) {
		first.set(p.before, p.noise.Inflow(0, k))
		if err := first.solve(p.pool); err != nil {
			return 0, err
		}
		bound += p.noise.Weight(0, k) * first.lp.Objective()
	}
	return bound, nil
}
