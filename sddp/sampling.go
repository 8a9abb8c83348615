package sddp

import "fmt"

// Sampling says from where the paths of forward passes and of simulated scenarios have their inflows.
type Sampling string

// The kinds of sampling. An empty Sampling is InSample.
const (
	InSample    Sampling = "in-sample"     // the openings, with their probabilities
	OutOfSample Sampling = "out-of-sample" // drawn anew from the inflow model; a model that gives its openings has no others
	Historical  Sampling = "historical"    // the years of the record in their order, if the inflow model has a record
)

// Given is the Sampling of a [Simulation] of [Paths].
const Given Sampling = "given"

// Samplings are the kinds of sampling that a user can ask for.
var Samplings = []Sampling{InSample, OutOfSample, Historical}

// checked returns the sampling, or an error if it is none or the case does not allow it.
func (s Sampling) checked(c *Case) (Sampling, error) {
	switch s {
	case "":
		return InSample, nil
	case InSample, OutOfSample:
		return s, nil
	case Historical:
		if c.laws() || c.Inflows.Openings != nil {
			return s, fmt.Errorf("sampling: %s needs a record; want inflow_model history or par in %s", s, caseFiles[0])
		}
		return s, nil
	}
	return s, fmt.Errorf("sampling: got %q, want one of %q", string(s), Samplings)
}

// inYear fills dst with the inflows of a stage on a historical path that begins in a year. That of the first
// stage is known.
func (n *Noise) inYear(dst []float64, stage, first int) {
	if stage == 0 {
		copy(dst, n.Inflow(0, 0))
		return
	}
	years := n.years()
	year := first + (n.season[0]+stage)/len(years[0])
	copy(dst, years[year%len(years)][n.season[stage]])
}

// years returns the inflows of the record, or the residuals with a PAR, by year, period and reservoir.
func (n *Noise) years() [][][]float64 {
	if n.model.PAR != nil {
		return n.model.PAR.Residual
	}
	return n.model.Record
}

// onPass fills dst with the inflows of a stage in a forward pass of an iteration.
func (n *Noise) onPass(dst []float64, s Sampling, iteration, pass, stage int) {
	switch s {
	case OutOfSample:
		n.outside(dst, stage, func(i int) float64 { return drawUniform(n.seed, iteration, pass, stage*n.reserv+i, forPass) })
	case Historical:
		n.inYear(dst, stage, drawBelow(n.seed, len(n.years()), iteration, pass, 0, forPass))
	default:
		copy(dst, n.Inflow(stage, n.forward(iteration, pass, stage)))
	}
}

// onPath fills dst with the inflows of a stage in a simulated scenario. Historical scenarios begin in one year of
// the record after the other.
func (n *Noise) onPath(dst []float64, s Sampling, scenario, stage int) {
	switch s {
	case OutOfSample:
		n.outside(dst, stage, func(i int) float64 { return drawUniform(n.seed, scenario, stage, i, forOutside) })
	case Historical:
		n.inYear(dst, stage, scenario)
	default:
		copy(dst, n.Inflow(stage, n.path(scenario, stage)))
	}
}
