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
	inflow []float64 // of a stage on a path
	least  []float64 // the smallest state
	most   []float64 // the largest state

	optima  []float64 // of a stage, by opening
	weights []float64 // of the openings in the risk
	mean    outcomes  // with these weights
	all     outcomes  // of a stage

	dearest float64 // the largest cost of a MW over a stage
}

// newPlanner creates the programs of all stages.
func newPlanner(c *Case, noise *Noise, pool *Pool, newSolver func() lp.Solver) (*planner, error) {
	stages, err := newStages(c, pool.futures, newSolver)
	if err != nil {
		return nil, err
	}
	p := &planner{c: c, noise: noise, pool: pool, stages: stages, before: make([]float64, c.states()), dearest: c.dearest()}
	p.after, p.least, p.most = make([]float64, c.states()), c.minState(), c.maxState()
	p.inflow = make([]float64, len(c.Reservoirs))
	p.mean = make(outcomes, 1+c.states())
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
	copy(p.before, p.c.initialState())
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

// outcomes holds the optima of openings of a stage, each followed by its derivatives by the initial storage.
type outcomes []float64

// openings solves a stage for its openings from lo to hi, with the storage at its start, and writes their
// outcomes to out.
//
// The first of them starts from the canonical basis, each later one from the final basis of the one
// before it, with the same cuts as rows. The outcomes therefore depend on the arguments and the pool only,
// not on what this worker solved before.
func (p *planner) openings(ctx context.Context, t int, storage []float64, lo, hi int, out outcomes) error {
	s, width := p.stages[t], 1+len(storage)
	if err := p.begin(ctx, s); err != nil {
		return err
	}
	for k := lo; k < hi; k++ {
		s.set(storage, p.noise.Inflow(t, k))
		if err := s.solve(p.pool); err != nil {
			return err
		}
		one := out[(k-lo)*width : (k-lo+1)*width]
		one[0] = s.lp.Objective()
		clear(one[1:])
		s.slope(one[1:], 1)
	}
	return nil
}

// risked returns the mean of the outcomes of all openings of a stage, with the weights that the openings have
// in the risk. The caller must not keep it.
func (p *planner) risked(t int, all outcomes) outcomes {
	width := 1 + p.c.states()
	p.optima, p.weights = p.optima[:0], p.weights[:0]
	for k := range p.noise.Openings(t) {
		p.optima = append(p.optima, all[k*width])
		p.weights = append(p.weights, p.noise.Weight(t, k))
	}
	p.risk.weights(p.weights, p.optima)
	clear(p.mean)
	for k, weight := range p.weights {
		for i := range p.mean {
			p.mean[i] += weight * all[k*width+i]
		}
	}
	return p.mean
}

// backward computes the cuts of stage t at a trial point, one for each future.
func (p *planner) backward(ctx context.Context, t int, trial, cuts []float64) error {
	n := p.noise.Openings(t + 1)
	p.all = append(p.all[:0], make(outcomes, n*(1+len(trial)))...)
	if err := p.openings(ctx, t+1, trial, 0, n, p.all); err != nil {
		return err
	}
	p.cuts(t, trial, p.all, cuts)
	return nil
}

// cuts writes alpha and beta of the cuts of stage t at a trial point, the storage at the end of the stage, to
// dst. With one future the cut is the mean of the outcomes of the next stage. Away from the trial point the risk
// may have other weights, and is then no smaller. With a future for each opening the outcomes are the cuts.
func (p *planner) cuts(t int, trial []float64, all outcomes, dst []float64) {
	width := 1 + len(trial)
	if len(dst) == width {
		all = p.risked(t+1, all)
	}
	copy(dst, all)
	for ; len(dst) > 0; dst = dst[width:] {
		cut := dst[:width]
		for r, b := range cut[1:] {
			cut[0] -= b * trial[r]
		}
		p.clean(cut)
	}
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
		cut[0] += min(b*p.least[r], b*p.most[r])
	}
}

// lowerBound returns the risk of the first stage's optima with the current cuts. No policy has a smaller
// risk.
func (p *planner) lowerBound() (float64, error) {
	p.initial()
	n := p.noise.Openings(0)
	p.all = append(p.all[:0], make(outcomes, n*(1+len(p.before)))...)
	if err := p.openings(context.Background(), 0, p.before, 0, n, p.all); err != nil {
		return 0, err
	}
	return p.risked(0, p.all)[0], nil
}
