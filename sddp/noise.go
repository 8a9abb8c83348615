package sddp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
)

// Noise holds the inflows of a sample average approximation: a few equally likely openings per stage,
// drawn from the lognormal distributions of the case. Forward and backward passes use the same ones.
// They are a function of the case, the seed, and the number of openings, so every rank can draw them
// without communication.
//
// The first stage has one opening, the mean. A Noise does not change after it is created and is safe
// for concurrent use.
type Noise struct {
	seed     uint64
	openings int
	reserv   int
	inflow   []float64     // by stage, opening, reservoir
	digest   string        // hash of inflow, once the ranks have compared it
	law      [][]lognormal // by period, reservoir
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

// at returns the u-quantile.
func (l lognormal) at(u float64) float64 {
	if l.sigma == 0 {
		return l.mean
	}
	return math.Exp(l.mu + l.sigma*math.Sqrt2*math.Erfinv(2*u-1))
}

// NewNoise draws the openings of a case.
//
// Local.
func NewNoise(c *Case, seed uint64, openings int) *Noise {
	n := noiseOf(c, seed, openings)
	n.inflow = make([]float64, n.numbers(c.Stages))
	for t := range c.Stages {
		n.draw(c, t)
	}
	return n
}

// noiseOf returns a Noise without inflows.
func noiseOf(c *Case, seed uint64, openings int) *Noise {
	n := &Noise{seed: seed, openings: openings, reserv: len(c.Reservoirs)}
	for p := range c.Periods {
		laws := make([]lognormal, n.reserv)
		for r, res := range c.Reservoirs {
			laws[r] = lognormalOf(res.InflowMean[p], res.InflowStd[p])
		}
		n.law = append(n.law, laws)
	}
	return n
}

// sum returns a hash, in hexadecimal, of the exact bits of all inflows. The bits can differ on another
// kind of processor, where the functions of package math round differently.
func (n *Noise) sum() string {
	h := sha256.New()
	const chunk = 1 << 12
	b := make([]byte, 0, 8*chunk)
	for left := n.inflow; len(left) > 0; {
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

// numbers returns how many inflows a number of stages has.
func (n *Noise) numbers(stages int) int { return stages * n.openings * n.reserv }

// draw draws the inflows of a stage.
func (n *Noise) draw(c *Case, stage int) {
	for k := range n.openings {
		a := n.Inflow(stage, k)
		for r := range a {
			law := n.law[c.Period(stage)][r]
			if stage == 0 {
				a[r] = law.mean
			} else {
				a[r] = law.at(drawUniform(n.seed, stage, k, r, forOpening))
			}
		}
	}
}

// Openings returns the number of openings of a stage: 1 for the first stage.
//
// Local.
func (n *Noise) Openings(stage int) int {
	if stage == 0 {
		return 1
	}
	return n.openings
}

// Weight returns the probability of an opening of a stage. The weights of a stage add up to 1.
//
// Local.
func (n *Noise) Weight(stage, opening int) float64 { return 1 / float64(n.Openings(stage)) }

// Inflow returns the inflows of an opening by reservoir, in MW-month. The caller must not modify the
// slice.
//
// Local.
func (n *Noise) Inflow(stage, opening int) []float64 {
	at := (stage*n.openings + opening) * n.reserv
	return n.inflow[at : at+n.reserv : at+n.reserv]
}

// forward returns the opening of a stage in a forward pass of an iteration.
func (n *Noise) forward(iteration, pass, stage int) int {
	if stage == 0 {
		return 0
	}
	return drawBelow(n.seed, n.openings, iteration, pass, stage, forPass)
}

// path returns the opening of a stage in a simulated scenario.
func (n *Noise) path(scenario, stage int) int {
	if stage == 0 {
		return 0
	}
	return drawBelow(n.seed, n.openings, scenario, stage, 0, forPath)
}

// tested returns the opening of a stage in a scenario of the test of the gap after a number of iterations.
func (n *Noise) tested(iterations, scenario, stage int) int {
	if stage == 0 {
		return 0
	}
	return drawBelow(n.seed, n.openings, iterations, scenario, stage, forTest)
}

// outside fills dst with the inflows of a stage in a simulated scenario that is not restricted to the
// openings.
func (n *Noise) outside(dst []float64, scenario, stage int) {
	for r := range dst {
		law := n.law[stage%len(n.law)][r]
		if stage == 0 {
			dst[r] = law.mean
		} else {
			dst[r] = law.at(drawUniform(n.seed, scenario, stage, r, forOutside))
		}
	}
}
