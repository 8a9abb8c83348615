package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// Noise holds the inflows of a sample average approximation: a few openings per stage. Forward and backward
// passes use the same ones. They are given by the inflow model of the case, or drawn from its lognormal
// distributions: then they are a function of the case, the seed, and the number of openings, so every rank
// can draw them without communication.
//
// Unless the model gives its openings, the first stage has one, the mean. A Noise does not change after it
// is created and is safe for concurrent use.
type Noise struct {
	seed   uint64
	model  *InflowModel
	first  []int // by stage, and at its end: the number of openings before
	season []int // by stage
	reserv int
	inflow []float64     // by stage, opening, reservoir
	digest string        // hash of inflow, once the ranks have compared it
	law    [][]lognormal // by season, reservoir
	factor [][][]float64 // of the correlations of the logarithms (cholesky), nil for none
}

// lognormal is the law of exp(mu + sigma*z), z standard normal; mean is its mean.
type lognormal struct{ mu, sigma, mean float64 }

// lognormalOf returns the lognormal law with the given mean and standard deviation.
func lognormalOf(mean, std float64) lognormal {
	if mean == 0 || std == 0 {
		return lognormal{mean: mean}
	}
	s2 := math.Log1p((std / mean) * (std / mean))
	return lognormal{mu: math.Log(mean) - s2/2, sigma: math.Sqrt(s2), mean: mean}
}

// at returns the value for a normal x with variance 1/2, which math.Erfinv gives.
func (l lognormal) at(x float64) float64 {
	if l.sigma == 0 {
		return l.mean
	}
	return math.Exp(l.mu + l.sigma*math.Sqrt2*x)
}

// NewNoise draws the openings of a case.
//
// Not collective.
func NewNoise(c *Case, seed uint64, openings int) *Noise {
	n := noiseOf(c, seed, openings)
	n.inflow = make([]float64, n.numbers())
	for t := range c.Stages {
		n.draw(c, t)
	}
	return n
}

// noiseOf returns a Noise without inflows.
func noiseOf(c *Case, seed uint64, openings int) *Noise {
	n := &Noise{seed: seed, model: c.Inflows, reserv: len(c.Reservoirs), first: []int{0}}
	if n.model == nil {
		n.model = &InflowModel{}
	}
	for t := range c.Stages {
		k := c.openings(openings)
		if n.model.Openings != nil {
			k = len(n.model.Openings[t])
		} else if t == 0 {
			k = 1
		}
		n.first, n.season = append(n.first, n.first[t]+k), append(n.season, c.Season(t))
	}
	if !c.laws() {
		return n
	}
	for p := range c.seasons() {
		laws := make([]lognormal, n.reserv)
		for r, res := range c.Reservoirs {
			laws[r] = lognormalOf(res.InflowMean[p], res.InflowStd[p])
		}
		n.law = append(n.law, laws)
	}
	for _, matrix := range n.model.Correlation {
		n.factor = append(n.factor, cholesky(matrix))
	}
	return n
}

// sum returns a hash, in hexadecimal, of the exact bits of all inflows from a stage on. The bits can differ on another
// kind of processor, where the functions of package math round differently.
func (n *Noise) sum(stage int) string {
	h := sha256.New()
	const chunk = 1 << 12
	b := make([]byte, 0, 8*chunk)
	for left := n.inflow[n.first[stage]*n.reserv:]; len(left) > 0; {
		part := left[:min(len(left), chunk)]
		left = left[len(part):]
		b = b[:0]
		for _, x := range part {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// numbers returns how many inflows all stages have.
func (n *Noise) numbers() int { return n.first[len(n.first)-1] * n.reserv }

// draw sets the inflows of a stage.
func (n *Noise) draw(c *Case, stage int) {
	for k := range n.Openings(stage) {
		a := n.Inflow(stage, k)
		switch {
		case n.model.Openings != nil:
			copy(a, n.model.Openings[stage][k].Inflow)
		case stage == 0:
			copy(a, c.expected(0))
		case n.model.Record != nil:
			copy(a, n.model.Record[k][n.season[stage]])
		case n.model.PAR != nil:
			years := n.model.PAR.Residual
			copy(a, years[drawBelow(n.seed, len(years), stage, k, 0, forOpening)][n.season[stage]])
		default:
			n.lognormal(a, n.season[stage], func(r int) float64 { return drawUniform(n.seed, stage, k, r, forOpening) })
		}
	}
}

// lognormal fills dst with inflows from the lognormal laws of a season, from a uniform number for each reservoir.
func (n *Noise) lognormal(dst []float64, season int, uniform func(r int) float64) {
	for r := range dst {
		dst[r] = math.Erfinv(2*uniform(r) - 1)
	}
	if n.factor != nil {
		factor := n.factor[season%len(n.factor)]
		for r := len(dst) - 1; r >= 0; r-- {
			sum := 0.0
			for i, f := range factor[r][:r+1] {
				sum += f * dst[i]
			}
			dst[r] = sum
		}
	}
	for r := range dst {
		dst[r] = n.law[season][r].at(dst[r])
	}
}

// Openings returns the number of openings of a stage.
//
// Not collective.
func (n *Noise) Openings(stage int) int { return n.first[stage+1] - n.first[stage] }

// Weight returns the probability of an opening of a stage. The weights of a stage add up to 1.
//
// Not collective.
func (n *Noise) Weight(stage, opening int) float64 {
	if n.model.Openings != nil {
		return n.model.Openings[stage][opening].Probability
	}
	return 1 / float64(n.Openings(stage))
}

// Inflow returns the inflows of an opening by reservoir, in the unit of the case; with a PAR their residuals.
// The caller must not modify
// the slice.
//
// Not collective.
func (n *Noise) Inflow(stage, opening int) []float64 {
	at := (n.first[stage] + opening) * n.reserv
	return n.inflow[at : at+n.reserv : at+n.reserv]
}

// choose returns an opening of a stage, each with its probability.
func (n *Noise) choose(stage, a, b, c int, p purpose) int {
	last := n.Openings(stage) - 1
	switch {
	case last == 0:
		return 0
	case n.model.Openings == nil:
		return drawBelow(n.seed, last+1, a, b, c, p)
	}
	return n.quantile(stage, drawUniform(n.seed, a, b, c, p))
}

// quantile returns the opening of a stage in which the sum of the probabilities passes u.
func (n *Noise) quantile(stage int, u float64) int {
	last := n.Openings(stage) - 1
	for k := range last {
		if u -= n.Weight(stage, k); u < 0 {
			return k
		}
	}
	return last
}

// forward returns the opening of a stage in a forward pass of an iteration.
func (n *Noise) forward(iteration, pass, stage int) int {
	return n.choose(stage, iteration, pass, stage, forPass)
}

// path returns the opening of a stage in a simulated scenario.
func (n *Noise) path(scenario, stage int) int { return n.choose(stage, scenario, stage, 0, forPath) }

// tested returns the opening of a stage in a scenario of the test of the gap after a number of iterations.
func (n *Noise) tested(iterations, scenario, stage int) int {
	return n.choose(stage, iterations, scenario, stage, forTest)
}

// outside fills dst with the inflows of a stage on a path that is not restricted to the openings that were
// drawn, from the uniform numbers of the stage.
func (n *Noise) outside(dst []float64, stage int, uniform func(i int) float64) {
	switch {
	case n.model.Openings != nil:
		copy(dst, n.Inflow(stage, n.quantile(stage, uniform(0))))
	case stage == 0:
		copy(dst, n.Inflow(0, 0))
	case n.law == nil:
		years := n.years()
		copy(dst, years[int(uniform(0)*float64(len(years)))][n.season[stage]])
	default:
		n.lognormal(dst, n.season[stage], uniform)
	}
}
