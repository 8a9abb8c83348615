package sddp

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// written is a case as a user writes it: the fields of case.json after its name, and the elements of the
// other files.
type written struct {
	head, buses, thermals, reservoirs, lines string
	openings                                 string // openings.csv
	history                                  string // history.csv
}

// read reads the case.
func (w written) read(t testing.TB) *Case {
	t.Helper()
	list := func(name, items string) []byte { return fmt.Appendf(nil, `{%q: [%s]}`, name, items) }
	text := caseText{
		[]byte(`{"format": "cohort-sddp-case", "version": 1, "name": "known", "spill_cost": 0, ` + w.head + `}`),
		list("buses", w.buses), list("thermals", w.thermals), list("reservoirs", w.reservoirs), list("lines", w.lines),
	}
	for name, table := range map[string]string{openingsFile: w.openings, historyFile: w.history} {
		if table != "" {
			text[len(caseFiles)+slices.Index(caseTables[:], name)] = []byte(table)
		}
	}
	c, err := parseCase("case", text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The expected costs are those of the programs that the cases are from, which derive them by hand:
//   - D01 to D09: cobre (github.com/cobre-rs/cobre), crates/cobre-sddp/tests/deterministic.rs.
//   - first_steps and FAST_hydro_thermal: SDDP.jl (github.com/odow/SDDP.jl), docs/src/tutorial/first_steps.jl
//     and docs/src/examples/FAST_hydro_thermal.jl. There a MW-month is a MWh: the stages have one hour.
//
// A stage of 730 h passes 2.628 hm3 per m3/s.
func TestSolutionsMatchKnownAnswers(t *testing.T) {
	const twoMonths = `"stages": 2, "periods": ["first", "second"], "hours_per_stage": 730`
	for _, k := range []struct {
		name string
		written
		want float64
	}{
		{"D01, thermal plants only", written{
			head:     twoMonths + `, "deficit_cost": 1000`,
			buses:    `{"name": "B0", "load_mw": [20, 20]}`,
			thermals: `{"name": "T0", "bus": "B0", "min_mw": 0, "max_mw": 15, "cost_per_mwh": 5}, {"name": "T1", "bus": "B0", "min_mw": 0, "max_mw": 15, "cost_per_mwh": 10}`,
		}, 182500},
		{"D02, one reservoir in hm3", written{
			head:     twoMonths + `, "deficit_cost": 1000`,
			buses:    `{"name": "B0", "load_mw": [80, 80]}`,
			thermals: `{"name": "T0", "bus": "B0", "min_mw": 0, "max_mw": 100, "cost_per_mwh": 50}`,
			reservoirs: `{"name": "H0", "bus": "B0", "max_storage": 200, "initial_storage": 100, "max_generation_mw": 50,
				"productivity_mw_per_m3s": 1, "inflow_mean": [40, 10], "inflow_std": [0, 0]}`,
		}, 23635000.0 / 9},
		{"D03, a cascade", written{
			head:     `"stages": 3, "periods": ["first", "second", "third"], "hours_per_stage": 730, "deficit_cost": 1000`,
			buses:    `{"name": "B0", "load_mw": [75, 75, 75]}`,
			thermals: `{"name": "T0", "bus": "B0", "min_mw": 0, "max_mw": 100, "cost_per_mwh": 50}`,
			reservoirs: `{"name": "H0", "bus": "B0", "max_storage": 150, "initial_storage": 80, "max_generation_mw": 30, "downstream": "H1",
				"productivity_mw_per_m3s": 1, "inflow_mean": [25, 15, 5], "inflow_std": [0, 0, 0]},
				{"name": "H1", "bus": "B0", "max_storage": 100, "initial_storage": 50, "max_generation_mw": 40,
				"productivity_mw_per_m3s": 1, "inflow_mean": [10, 5, 2], "inflow_std": [0, 0, 0]}`,
		}, 4171000.0 / 3},
		{"D04, two buses", written{
			head:     twoMonths + `, "deficit_cost": 1000`,
			buses:    `{"name": "B0", "load_mw": [30, 30]}, {"name": "B1", "load_mw": [40, 40]}`,
			thermals: `{"name": "T0", "bus": "B0", "min_mw": 0, "max_mw": 100, "cost_per_mwh": 50}`,
			reservoirs: `{"name": "H0", "bus": "B0", "max_storage": 200, "initial_storage": 100, "max_generation_mw": 50,
				"productivity_mw_per_m3s": 1, "inflow_mean": [35, 20], "inflow_std": [0, 0]},
				{"name": "H1", "bus": "B1", "max_storage": 100, "initial_storage": 50, "max_generation_mw": 20,
				"productivity_mw_per_m3s": 1, "inflow_mean": [15, 5], "inflow_std": [0, 0]}`,
			lines: `{"from": "B0", "to": "B1", "direct_mw": 15, "reverse_mw": 15, "cost_per_mwh": 0.01}`,
		}, 7210.0/657*1000*730 + 2*15*0.01*730},
		{"D09, a deficit in tiers", written{
			head:     twoMonths + `, "deficit_cost": 5000, "deficit_tiers": [{"share_of_load": 0.2, "cost_per_mwh": 500}]`,
			buses:    `{"name": "B0", "load_mw": [50, 50]}`,
			thermals: `{"name": "T0", "bus": "B0", "min_mw": 0, "max_mw": 30, "cost_per_mwh": 10}`,
		}, 2 * 55300 * 730},
		{"first_steps, inflows in the first stage too", written{
			head:       `"stages": 3, "periods": ["first", "second", "third"], "hours_per_stage": 1, "deficit_cost": 1000, "inflow_model": "openings"`,
			buses:      `{"name": "B", "load_mw": [150, 150, 150]}`,
			thermals:   `{"name": "T", "bus": "B", "min_mw": 0, "max_mw": 150, "cost_per_mwh": [50, 100, 150]}`,
			reservoirs: `{"name": "H", "bus": "B", "max_storage": 200, "initial_storage": 200, "max_generation_mw": 150}`,
			openings: `stage, probability, H
				1, 0.3333333333333333, 0
				1, 0.3333333333333333, 50
				1, 0.3333333333333334, 100
				2, 0.3333333333333333, 0
				2, 0.3333333333333333, 50
				2, 0.3333333333333334, 100
				3, 0.3333333333333333, 0
				3, 0.3333333333333333, 50
				3, 0.3333333333333334, 100`,
		}, 25000.0 / 3},
		{"FAST_hydro_thermal", written{
			head:       `"stages": 2, "periods": ["first", "second"], "hours_per_stage": 1, "deficit_cost": 1000, "inflow_model": "openings"`,
			buses:      `{"name": "B", "load_mw": [6, 6]}`,
			thermals:   `{"name": "T", "bus": "B", "min_mw": 0, "max_mw": 100, "cost_per_mwh": 5}`,
			reservoirs: `{"name": "H", "bus": "B", "max_storage": 8, "initial_storage": 0, "max_generation_mw": 100}`,
			openings:   "stage,probability,H\n1,1,6\n2,0.5,2\n2,0.5,10\n",
		}, 10},
	} {
		name, _, _ := strings.Cut(k.name, ",")
		t.Run(name, func(t *testing.T) {
			c := k.read(t)
			tr := trained(t, c, Options{Iterations: 15, Passes: 4, Openings: 1})
			p, err := newPlanner(c, NewNoise(c, 0, 1), tr.Policy.Pool, embedded)
			if err != nil {
				t.Fatal(err)
			}
			cost := expectedCost(t, p, make([][][]float64, c.Stages))
			if lower := tr.Policy.LowerBound; !within(lower, k.want) || !within(cost, k.want) {
				t.Errorf("%s: the lower bound is %.10g and the policy costs %.10g, want %.10g", k.name, lower, cost, k.want)
			}
		})
	}
}
