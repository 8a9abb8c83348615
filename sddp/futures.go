package sddp

import "slices"

// futures describes the functions that cuts bound: for each stage but the last, the weight of each of them in
// the expected cost after the stage. By default a stage has one, the expected cost itself. With multi-cut (J. R.
// Birge, F. V. Louveaux, A multicut algorithm for two-stage stochastic linear programs, European Journal of
// Operational Research 34, 1988) it has one for each opening of the next stage. The program of the stage then
// has a theta for each.
type futures [][]float64

// expectedFutures returns one future for each stage but the last.
func expectedFutures(stages int) futures {
	return slices.Repeat(futures{{1}}, stages-1)
}

// futures returns the futures of a training.
func (o Options) futures(c *Case) futures {
	f := expectedFutures(c.Stages)
	if !o.MultiCut {
		return f
	}
	n := noiseOf(c, o.Seed, o.Openings)
	for t := range f {
		if t > 0 && n.model.Openings == nil { // all stages but the first have the same openings
			f[t] = f[0]
			continue
		}
		f[t] = nil
		for k := range n.Openings(t + 1) {
			f[t] = append(f[t], n.Weight(t+1, k))
		}
	}
	return f
}

// first returns the number of futures of the stages before t.
func (f futures) first(t int) int {
	n := 0
	for _, weights := range f[:t] {
		n += len(weights)
	}
	return n
}

// total returns the number of futures of all stages.
func (f futures) total() int { return f.first(len(f)) }

// of returns the weights of a stage. The last stage has one future, the cost after the horizon.
func (f futures) of(t int) []float64 {
	if t == len(f) {
		return []float64{1}
	}
	return f[t]
}

// most returns the largest number of futures of a stage.
func (f futures) most() int {
	most := 0
	for _, weights := range f {
		most = max(most, len(weights))
	}
	return most
}

// same reports whether every stage has as many futures as in g.
func (f futures) same(g futures) bool {
	return slices.EqualFunc(f, g, func(a, b []float64) bool { return len(a) == len(b) })
}
