package sddp

import (
	"cmp"
	"fmt"
	"slices"
)

// Risk says how a training weighs the costs of the openings of a stage: 1 - Lambda times their expectation
// plus Lambda times their CVaR, the mean of the costliest openings that have probability Alpha together.
// The zero value is the expectation.
//
// The measure is nested: the cost of an opening includes the risk of the later stages (Shapiro, 2011).
type Risk struct {
	Lambda float64 // from 0 to 1
	Alpha  float64 // above 0 and up to 1; not used if Lambda is 0
}

// Neutral reports whether r is the expectation.
//
// Not collective.
func (r Risk) Neutral() bool { return r.Lambda == 0 }

// String returns a short text, such as "0.5 × mean + 0.5 × CVaR of the costliest 10 %".
//
// Not collective.
func (r Risk) String() string {
	if r.Neutral() {
		return "expectation"
	}
	return fmt.Sprintf("%.6g × mean + %.6g × CVaR of the costliest %.6g %%", 1-r.Lambda, r.Lambda, 100*r.Alpha)
}

// check returns an error for values that are not allowed.
func (r Risk) check() error {
	if !(r.Lambda >= 0 && r.Lambda <= 1) {
		return fmt.Errorf("CVaR lambda: got %g, want a number from 0 to 1", r.Lambda)
	}
	if r.Lambda > 0 && !(r.Alpha > 0 && r.Alpha <= 1) {
		return fmt.Errorf("CVaR alpha: got %g, want a number above 0 and up to 1", r.Alpha)
	}
	return nil
}

// weights turns the probabilities of openings into weights with which the mean of their costs is the risk.
// Any other weights that the measure allows give a mean that is no larger (its dual representation:
// Shapiro, Tekaya, da Costa, Pereira Soares, 2013, section 3). Of equal costs the first gets more weight.
func (r Risk) weights(probabilities, costs []float64) {
	if r.Neutral() {
		return
	}
	order := make([]int, len(costs))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(costs[b], costs[a]) })
	left := 1.0
	for _, k := range order {
		tail := min(probabilities[k]/r.Alpha, left)
		left -= tail
		probabilities[k] = (1-r.Lambda)*probabilities[k] + r.Lambda*tail
	}
}
