package sddp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// seasonal is a case of six stages with one reservoir and a wet and a dry season: head has the periods, load and
// inflow a value for each period and season, and reservoir further fields.
func seasonal(model, head, load, inflow, reservoir string) written {
	rng := rand.New(rand.NewPCG(3, 4))
	var record strings.Builder
	record.WriteString("year,period,Lake\n")
	for year, before := 0, 30.0; year < 60; year++ {
		wet := 10 + 0.7*before + 10*rng.Float64()
		before = 5 + 0.5*wet + 10*rng.Float64()
		fmt.Fprintf(&record, "%d,wet,%g\n%d,dry,%g\n", year, wet, year, before)
	}
	return written{
		head:     fmt.Sprintf(`%s, "stages": 6, "hours_per_stage": 730, "deficit_cost": 500, "inflow_model": %q`, head, model),
		buses:    fmt.Sprintf(`{"name": "B", "load_mw": [%s]}`, load),
		thermals: `{"name": "T", "bus": "B", "min_mw": 0, "max_mw": 25, "cost_per_mwh": 40}`,
		reservoirs: fmt.Sprintf(`{"name": "Lake", "bus": "B", "max_storage": 60, "initial_storage": 20, "max_generation_mw": 50,
			"inflow_mean": [%s], "inflow_std": [%s]%s}`, inflow, inflow, reservoir),
		history: record.String(),
	}
}

// Seasons are the calendar of inflows alone: with the loads of three years written out and two seasons, a case is
// the case of two periods that repeat. It may begin in any period.
func TestSeasonsAreApartFromPeriods(t *testing.T) {
	const years = `"periods": ["w1", "d1", "w2", "d2", "w3", "d3"], "seasons": ["wet", "dry"]`
	for _, model := range []string{"lognormal", "history", "par"} {
		for _, k := range []struct{ name, head, load, same, sameLoad string }{
			{"from wet", `"periods": ["wet", "dry"]`, "50, 70", years, "50, 70, 50, 70, 50, 70"},
			{"from dry", `"periods": ["wet", "dry"], "first_period": "dry"`, "50, 70", years + `, "first_period": "d2"`, "50, 70, 50, 70, 50, 70"},
			{"from dry, periods begin there", `"periods": ["wet", "dry"], "first_period": "dry"`, "50, 70",
				`"periods": ["d", "w"], "seasons": ["wet", "dry"], "first_season": "dry"`, "70, 50"},
		} {
			t.Run(model+" "+k.name, func(t *testing.T) {
				c := seasonal(model, k.head, k.load, "40, 20", "").read(t)
				same := seasonal(model, k.same, k.sameLoad, "40, 20", "").read(t)
				for _, sampling := range Samplings {
					if _, err := sampling.checked(c); err != nil {
						continue
					}
					opt := Options{Iterations: 4, Passes: 3, Openings: 4, Seed: 2, Sampling: sampling}
					a, b := trained(t, c, opt).Policy, trained(t, same, opt).Policy
					if a.LowerBound != b.LowerBound || a.Pool.SHA256() != b.Pool.SHA256() {
						t.Errorf("%s: the lower bound is %v, of the same case %v", sampling, a.LowerBound, b.LowerBound)
					}
				}
			})
		}
	}
}

// The inflow of the first stage is the one that the case gives; with a PAR those of later stages follow it. Before
// a first stage in the dry season comes the mean of the wet one.
func TestFirstInflowIsThatOfTheCase(t *testing.T) {
	const dry = `"periods": ["wet", "dry"], "first_period": "dry"`
	for _, model := range []string{"lognormal", "history", "par"} {
		c := seasonal(model, dry, "50, 70", "40, 20", `, "first_inflow": 7.5`).read(t)
		noise := NewNoise(c, 1, 3)
		s, err := newStage(c, 0, expectedFutures(c.Stages), embedded())
		if err != nil {
			t.Fatal(err)
		}
		s.set(c.initialState(), noise.Inflow(0, 0))
		if got := s.inflow[0]; got < 7.5-1e-12 || got > 7.5+1e-12 {
			t.Errorf("%s: the first inflow is %v, want 7.5", model, got)
		}
		if model != "par" {
			continue
		}
		if m := c.par(); len(m.Past[0]) == 0 || m.Past[0][0] != m.Mean[0][0] {
			t.Errorf("before the first stage: %v, want the mean of the wet season %v", m.Past[0], m.Mean[0][0])
		}
		if next := s.v[1]; next < 7.5-1e-12 || next > 7.5+1e-12 {
			t.Errorf("the inflow before the second stage is %v, want 7.5", next)
		}
	}
}

// Other inflows up to the first stage change no cost after it, so that a policy can go on with its cuts. The order
// of a PAR has a limit.
func TestOtherRecentInflowsKeepCuts(t *testing.T) {
	const head = `"periods": ["wet", "dry"], "par_max_order": 1`
	c := seasonal("par", head, "50, 70", "40, 20", `, "past_inflows": [30]`).read(t)
	opt := Options{Iterations: 10, Passes: 4, Openings: 3, Seed: 2}
	opt.Warm = trained(t, c, opt).Policy
	other := seasonal("par", head, "50, 70", "40, 20", `, "past_inflows": [12], "first_inflow": 8`).read(t)
	opt.Iterations = 1
	warm := trained(t, other, opt).Policy
	old, _ := opt.Warm.Pool.Cut(0, 0)
	if got, _ := warm.Pool.Cut(0, 0); got != old {
		t.Errorf("the first cut is %v, want that of the old policy, %v", got, old)
	}
	for _, coefs := range slices.Concat(c.par().Coefs...) {
		if len(coefs) > 1 {
			t.Errorf("the order is %d, want at most 1", len(coefs))
		}
	}
}
