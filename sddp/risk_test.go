package sddp

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

func TestRiskWeights(t *testing.T) {
	quarter := []float64{0.25, 0.25, 0.25, 0.25}
	for _, k := range []struct {
		name                       string
		risk                       Risk
		probabilities, costs, want []float64
	}{
		{"expectation", Risk{}, quarter, []float64{4, 1, 3, 2}, quarter},
		{"CVaR of everything is the expectation", Risk{1, 1}, quarter, []float64{4, 1, 3, 2}, quarter},
		{"the worst case", Risk{1, 0.01}, quarter, []float64{4, 1, 3, 2}, []float64{1, 0, 0, 0}},
		{"the costliest half", Risk{1, 0.5}, quarter, []float64{4, 1, 3, 2}, []float64{0.5, 0, 0.5, 0}},
		{"one and a half openings", Risk{1, 0.375}, quarter, []float64{4, 1, 3, 2}, []float64{2.0 / 3, 0, 1.0 / 3, 0}},
		{"mixed with the expectation", Risk{0.5, 0.5}, quarter, []float64{4, 1, 3, 2}, []float64{0.375, 0.125, 0.375, 0.125}},
		{"unequal probabilities", Risk{1, 0.5}, []float64{0.1, 0.6, 0.3}, []float64{9, 5, 1}, []float64{0.2, 0.8, 0}},
		{"of equal costs the first", Risk{1, 0.25}, quarter, []float64{1, 7, 7, 7}, []float64{0, 1, 0, 0}},
	} {
		got := slices.Clone(k.probabilities)
		k.risk.weights(got, k.costs)
		sum := 0.0
		for i := range got {
			sum += got[i]
			if math.Abs(got[i]-k.want[i]) > 1e-15 {
				t.Errorf("%s: got %v, want %v", k.name, got, k.want)
				break
			}
		}
		if math.Abs(sum-1) > 1e-15 {
			t.Errorf("%s: the weights add up to %v", k.name, sum)
		}
	}
}

// The mean of the costliest scenarios, with a share of the last one.
func TestSimulationCVaRAndQuantiles(t *testing.T) {
	s := &Simulation{Scenarios: []ScenarioResult{{Cost: 30}, {Cost: 10}, {Cost: 50}, {Cost: 20}, {Cost: 40}}}
	for _, k := range []struct{ got, want float64 }{
		{s.CVaR(0.2), 50}, {s.CVaR(0.4), 45}, {s.CVaR(0.3), (50 + 0.5*40) / 1.5}, {s.CVaR(1), 30},
		{s.Quantile(0), 10}, {s.Quantile(0.5), 30}, {s.Quantile(0.625), 35}, {s.Quantile(1), 50},
	} {
		if math.Abs(k.got-k.want) > 1e-12 {
			t.Errorf("got %v, want %v", k.got, k.want)
		}
	}
}

// riskBelow is below for a nested risk. The cost of a node and of all after it is the variable C; the risk
// of a node's successors is
//
//	R = (1-lambda) sum p C + lambda (u + sum p z / alpha),  z >= C - u,  z >= 0
//
// with a free u (Rockafellar and Uryasev, 2000). The objective is the R before the first stage; weight is the
// discount of R in the stage before.
func (l *treeLP) riskBelow(t int, v []float64, parent int, weight float64) {
	outer := l.objective.String()
	at := l.nodes // the names of R and u need only be unique
	risk := fmt.Sprintf("%s u_%d", num(l.risk.Lambda), at)
	for o := range l.noise.Openings(t) {
		id, p := l.nodes, l.noise.Weight(t, o)
		l.objective.Reset()
		l.node(t, v, parent, 1, l.noise.Inflow(t, o))
		fmt.Fprintf(&l.rows, "%s - C_%d = 0\n", l.objective.String(), id)
		fmt.Fprintf(&l.rows, "z_%d - C_%d + u_%d >= 0\n", id, id, at)
		fmt.Fprintf(&l.bounds, "C_%d free\n", id)
		risk += fmt.Sprintf("\n%s C_%d%s z_%d", num((1-l.risk.Lambda)*p), id, num(l.risk.Lambda*p/l.risk.Alpha), id)
	}
	fmt.Fprintf(&l.rows, "%s - R_%d = 0\n", risk, at)
	fmt.Fprintf(&l.bounds, "u_%d free\nR_%d free\n", at, at)
	l.objective.Reset()
	fmt.Fprintf(&l.objective, "%s %s R_%d\n", outer, num(weight), at)
}

// nestedRisk returns the risk of the policy's cost from a stage on, over all paths of the tree.
func nestedRisk(t *testing.T, p *planner, risk Risk, stage int, storage []float64) float64 {
	t.Helper()
	if stage == p.c.Stages {
		return 0
	}
	var weights, costs []float64
	s, n := p.stages[stage], p.noise.Openings(stage)
	for k := range n {
		if err := p.begin(context.Background(), s); err != nil {
			t.Fatal(err)
		}
		s.set(storage, p.noise.Inflow(stage, k))
		if err := s.solve(p.pool); err != nil {
			t.Fatal(err)
		}
		cost, end := s.cost(), slices.Clone(s.end(p.c))
		costs = append(costs, cost+s.discount*nestedRisk(t, p, risk, stage+1, end))
		weights = append(weights, p.noise.Weight(stage, k))
	}
	risk.weights(weights, costs)
	sum := 0.0
	for k, w := range weights {
		sum += w * costs[k]
	}
	return sum
}

// The lower bound rises to the smallest nested risk that any policy has, which the linear program of the
// whole tree gives. The policy has this risk, and no cut exceeds the true risk of later stages.
func TestNestedCVaREqualsExtensiveForm(t *testing.T) {
	cases, step := 34, 1
	if testing.Short() {
		step = 5
	}
	for n := 0; n < cases; n += step {
		rng := rand.New(rand.NewPCG(uint64(n), 78))
		name, c := featured(n, rng)
		t.Run(name, func(t *testing.T) {
			if err := c.checkStages("case"); err != nil {
				t.Fatal(err)
			}
			risk := Risk{[]float64{1, 0.5, 0.9}[n%3], []float64{0.2, 0.5, 0.6}[rng.IntN(3)]}
			opt := Options{Iterations: 80, Passes: 6, Openings: 2 + rng.IntN(2), Seed: uint64(n), Risk: risk}
			noise := NewNoise(c, opt.Seed, opt.Openings)
			tree := &treeLP{c: c, noise: noise, risk: risk}
			initial := c.initialState()
			tree.below(0, initial, 0, 1)
			want := tree.glpsol(t)
			tr := trained(t, c, opt)
			if got := tr.Policy.LowerBound; !within(got, want) {
				t.Errorf("with %v, the lower bound ends at %.10g, the least risk is %.10g", risk, got, want)
			}
			p, err := newPlanner(c, noise, tr.Policy.Pool, embedded)
			if err != nil {
				t.Fatal(err)
			}
			if got := nestedRisk(t, p, risk, 0, initial); !within(got, want) {
				t.Errorf("with %v, the risk of the policy is %.10g, the least is %.10g", risk, got, want)
			}
			for s := range c.Stages - 1 {
				v := c.maxState()
				for i := range v {
					v[i] *= rng.Float64()
				}
				rest := &treeLP{c: c, noise: noise, risk: risk}
				rest.below(s+1, v, 0, 1)
				truth := rest.glpsol(t)
				if cuts := tr.Policy.Pool.Value(s, v); cuts > truth && !within(cuts, truth) {
					t.Errorf("stage %d at %v: a cut says %.10g, the risk of later stages is %.10g", s+1, v, cuts, truth)
				}
			}
		})
	}
}

// A policy that minimizes risk has a higher expected cost and fewer costly scenarios than one that minimizes
// the expectation.
func TestRiskAverseTrainingTradesMeanForTail(t *testing.T) {
	c := rotated(t, 4)
	const scenarios = 300
	cost := func(risk Risk) *Simulation {
		_, simulations := onRanks(t, 1, c, Options{Iterations: 15, Passes: 4, Openings: 6, Seed: 3, Risk: risk}, scenarios)
		return simulations[0]
	}
	neutral, averse := cost(Risk{}), cost(Risk{0.6, 0.2})
	if averse.Cost.Mean <= neutral.Cost.Mean || averse.CVaR(0.05) >= neutral.CVaR(0.05) {
		t.Errorf("with risk the mean is %v and the CVaR %v; without, %v and %v", averse.Cost.Mean, averse.CVaR(0.05), neutral.Cost.Mean, neutral.CVaR(0.05))
	}
}

// With a risk the gap is unknown, and a training that should stop by it does not begin.
func TestGapIsUnknownWithRisk(t *testing.T) {
	c := readShipped(t, "toy")
	tr := trained(t, c, Options{Iterations: 2, Risk: Risk{0.5, 0.1}})
	if !math.IsInf(tr.Last().Gap, 1) {
		t.Errorf("the gap is %v, want infinity", tr.Last().Gap)
	}
	for _, k := range []struct {
		opt  Options
		want string
	}{
		{Options{Gap: 0.01, Risk: Risk{0.5, 0.1}}, "the gap is unknown"},
		{Options{Risk: Risk{1.1, 0.1}}, "CVaR lambda: got 1.1"},
		{Options{Risk: Risk{0.5, 0}}, "CVaR alpha: got 0"},
	} {
		err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) error {
			_, err := Train(context.Background(), world, c, k.opt)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("got %v, want an error with %q", err, k.want)
		}
	}
}
