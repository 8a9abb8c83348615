package sddp

import "slices"

// selection finds the cuts that are highest at no trial point of their stage, so that programs need not look at
// them (level one: V. L. de Matos, A. B. Philpott, E. C. Finardi, Improving the performance of stochastic
// dual dynamic programming, Journal of Computational and Applied Mathematics 290, 2015). They stay in the pool,
// because they may be highest at a later trial point.
//
// The selection is a function of the cuts and the trial points so far, so it is the same on all ranks.
type selection struct {
	reserv int
	stages []stageSelection
}

// stageSelection is the selection of a stage. Points are ordered by iteration and forward pass.
type stageSelection struct {
	points []float64 // trial points
	best   []int     // by point: the highest cut, the first of equals
	height []float64 // by point: of that cut
	cuts   int       // that the points have been compared with
	idle   []bool    // by cut: highest at no point
}

// newSelection returns a selection without points.
func newSelection(stages, reservoirs int) *selection {
	return &selection{reserv: reservoirs, stages: make([]stageSelection, stages-1)}
}

// add adds trial points of a stage, and the cuts of the pool that are new.
func (s *selection) add(pool *Pool, stage int, points []float64) {
	st := &s.stages[stage]
	old := len(st.best)
	st.points = append(st.points, points...)
	for at := old * s.reserv; at < len(st.points); at += s.reserv {
		st.best, st.height = append(st.best, -1), append(st.height, 0) // the cost of later stages is at least 0
	}
	i, width := 0, 1+s.reserv
	for _, part := range pool.lists[stage].parts {
		for ; len(part) > 0; part = part[width:] {
			from := old // older points know the older cuts
			if i >= st.cuts {
				from = 0
			}
			for k := from; k < len(st.best); k++ {
				v := st.points[k*s.reserv : (k+1)*s.reserv]
				if h := height(part[0], part[1:width], v); h > st.height[k] {
					st.best[k], st.height[k] = i, h
				}
			}
			i++
		}
	}
	// Without reservoirs there are no points, and no cut is idle.
	st.cuts, st.idle = i, slices.Repeat([]bool{len(st.best) > 0}, i)
	for _, i := range st.best {
		if i >= 0 {
			st.idle[i] = false
		}
	}
}

// isIdle reports whether programs need not look at a cut.
func (s *selection) isIdle(stage, cut int) bool {
	return s != nil && cut < len(s.stages[stage].idle) && s.stages[stage].idle[cut]
}

// snapshot returns the selection as it is, in the same memory.
func (s *selection) snapshot() *selection {
	if s == nil {
		return nil
	}
	return &selection{s.reserv, slices.Clone(s.stages)}
}

// numbers returns the numbers of the first points of a stage.
func (s *selection) numbers(stage, points int) []float64 {
	return s.stages[stage].points[:points*s.reserv]
}
