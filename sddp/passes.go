package sddp

import (
	"context"
	"fmt"
)

// forwardPasses runs this rank's forward passes and stores their trial points and costs.
func (tr *trainer) forwardPasses(ctx context.Context, iteration int) error {
	guide := tr.guide(iteration)
	return tr.each(tr.hi-tr.lo, func(worker, i int) error {
		m := tr.lo + i
		p := tr.planners[worker]
		inflow := func(t int) []float64 {
			tr.noise.onPass(p.inflow, tr.opt.Sampling, iteration, m, t)
			return p.inflow
		}
		p.pool = guide
		defer func() { p.pool = tr.pool }()
		cost, err := p.forward(ctx, inflow, func(s *stage) {
			if s.t < tr.c.Stages-1 {
				copy(tr.trial(m, s.t), s.end(tr.c))
			}
		})
		if err != nil {
			return fmt.Errorf("forward pass %d: %w", m+1, err)
		}
		tr.costs[i] = cost
		return nil
	})
}

// backwardPasses computes the cuts of stage t at all trial points, one for each future. All ranks receive them.
// A worker solves the openings of a trial point one after another, because each starts from the final basis of
// the previous one: all of them, or a block.
func (tr *trainer) backwardPasses(ctx context.Context, t int) error {
	if tr.opt.OpeningBlocks > 1 {
		return tr.backwardBlocks(ctx, t)
	}
	width := len(tr.pool.futures[t]) * (1 + tr.pool.reserv) // of the cuts of a pass
	failed := tr.timed(func() error {
		return tr.each(tr.hi-tr.lo, func(worker, i int) error {
			m := tr.lo + i
			if err := tr.planners[worker].backward(ctx, t, tr.trial(m, t), tr.cuts[m*width:(m+1)*width]); err != nil {
				return fmt.Errorf("backward pass %d: %w", m+1, err)
			}
			return nil
		})
	})
	return tr.share("cuts", tr.cuts[:tr.opt.Passes*width], tr.opt.Passes, width, failed)
}

// backwardBlocks is backwardPasses with the openings of each trial point in blocks. All ranks receive the
// outcomes of all openings and compute the cuts.
func (tr *trainer) backwardBlocks(ctx context.Context, t int) error {
	width, n, blocks := 1+tr.pool.reserv, tr.noise.Openings(t+1), tr.opt.OpeningBlocks
	each := (n + blocks - 1) / blocks // openings in a block; the last ones may have fewer
	items, itemWidth := tr.opt.Passes*blocks, each*width
	all := make(outcomes, items*itemWidth)
	lo, hi := tr.block(tr.rank, items)
	failed := tr.timed(func() error {
		return tr.each(hi-lo, func(worker, i int) error {
			item := lo + i
			m, from := item/blocks, min(item%blocks*each, n)
			if err := tr.planners[worker].openings(ctx, t+1, tr.trial(m, t), from, min(from+each, n), all[item*itemWidth:(item+1)*itemWidth]); err != nil {
				return fmt.Errorf("backward pass %d: %w", m+1, err)
			}
			return nil
		})
	})
	if err := tr.share("outcomes of openings", all, items, itemWidth, failed); err != nil {
		return err
	}
	for m := range tr.opt.Passes {
		cuts := len(tr.pool.futures[t]) * width
		tr.planners[0].cuts(t, tr.trial(m, t), all[m*blocks*itemWidth:], tr.cuts[m*cuts:(m+1)*cuts])
	}
	return nil
}

// addCuts adds the new cuts of stage t to the pool, for each future in the order of the passes.
func (tr *trainer) addCuts(t int) error {
	first, end := tr.pool.Lists(t)
	width, step := 1+tr.pool.reserv, (end-first)*(1+tr.pool.reserv)
	for list := first; list < end; list++ {
		tr.one = tr.one[:0]
		for m := range tr.opt.Passes {
			at := m*step + (list-first)*width
			tr.one = append(tr.one, tr.cuts[at:at+width]...)
		}
		tr.memory.put(list, tr.pool.novel(list, tr.one, tr.least, tr.most))
	}
	return tr.memory.fence()
}

// selectCuts adds the trial points and cuts of an iteration to the selection.
func (tr *trainer) selectCuts() {
	points := make([]float64, 0, tr.opt.Passes*tr.pool.reserv)
	for t := range tr.pool.Stages() {
		points = points[:0]
		for m := range tr.opt.Passes {
			points = append(points, tr.trial(m, t)...)
		}
		tr.pool.selection.add(tr.pool, t, points)
	}
}
