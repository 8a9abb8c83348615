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
	risk   Risk // of a training
	stages []*stage
	before []float64 // storage at the start of a stage in a forward pass
	after  []float64 // storage at its end, while before is still needed

	optima  []float64 // of a stage, by opening
	slopes  []float64 // and their derivatives by the initial storage, by opening and reservoir
	weights []float64 // of the openings in the risk

	dearest float64 // the largest cost of a MW over a stage
}

// newPlanner creates the programs of all stages.
func newPlanner(c *Case, noise *Noise, pool *Pool, newSolver func() lp.Solver) (*planner, error) {
	stages, err := newStages(c, newSolver)
	if err != nil {
		return nil, err
	}
	p := &planner{c: c, noise: noise, pool: pool, stages: stages, before: make([]float64, len(c.Reservoirs)), dearest: c.dearest()}
	p.after = make([]float64, len(c.Reservoirs))
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

// begin begins the work on a stage: its solution will not depend on earlier ones. It returns the cause if
// ctx has ended.
func (p *planner) begin(ctx context.Context, s *stage) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return s.restart()
}

// forward simulates one path through the stages with the inflows that inflow returns, and passes each
// solved stage to seen. It returns the cost of the path at the start of the horizon.
func (p *planner) forward(ctx context.Context, inflow func(stage int) []float64, seen func(s *stage)) (float64, error) {
	total, worth := 0.0, 1.0
	p.initial()
	for t, s := range p.stages {
		if err := p.begin(ctx, s); err != nil {
			return 0, err
		}
		s.set(p.before, inflow(t))
		if err := s.solve(p.pool); err != nil {
			return 0, err
		}
		total += worth * s.cost()
		worth *= s.discount
		if seen != nil {
			seen(s)
		}
		copy(p.before, s.end(p.c))
	}
	return total, nil
}

// openings solves a stage for all its openings, with the storage at its start, and sets optima, slopes and
// weights.
//
// The first opening starts from the canonical basis, each later one from the final basis of the one
// before it, with the same cuts as rows. The results therefore depend on the storage and the pool only,
// not on what this worker solved before.
func (p *planner) openings(ctx context.Context, t int, storage []float64) error {
	s, reserv := p.stages[t], len(storage)
	if err := p.begin(ctx, s); err != nil {
		return err
	}
	n := p.noise.Openings(t)
	p.optima, p.weights = p.optima[:0], p.weights[:0]
	p.slopes = append(p.slopes[:0], make([]float64, n*reserv)...)
	for k := range n {
		s.set(storage, p.noise.Inflow(t, k))
		if err := s.solve(p.pool); err != nil {
			return err
		}
		p.optima = append(p.optima, s.lp.Objective())
		p.weights = append(p.weights, p.noise.Weight(t, k))
		s.slope(p.slopes[k*reserv:(k+1)*reserv], 1)
	}
	p.risk.weights(p.weights, p.optima)
	return nil
}

// backward computes the cut of stage t at a trial point, the storage at the end of the stage, and writes
// alpha and beta to cut. It is the mean, over the openings of the next stage, of the optimum there and its
// derivatives, with the weights that the openings have in the risk at the trial point. Elsewhere the risk
// has other weights and is no smaller.
func (p *planner) backward(ctx context.Context, t int, trial, cut []float64) error {
	if err := p.openings(ctx, t+1, trial); err != nil {
		return err
	}
	clear(cut)
	for k, weight := range p.weights {
		cut[0] += weight * p.optima[k]
		for r := range trial {
			cut[1+r] += weight * p.slopes[k*len(trial)+r]
		}
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

// lowerBound returns the risk of the first stage's optima with the current cuts. No policy has a smaller
// risk.
func (p *planner) lowerBound() (float64, error) {
	p.initial()
	if err := p.openings(context.Background(), 0, p.before); err != nil {
		return 0, err
	}
	bound := 0.0
	for k, weight := range p.weights {
		bound += weight * p.optima[k]
	}
	return bound, nil
}
