package sddp

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func readShipped(t testing.TB, name string) *Case {
	t.Helper()
	c, err := ReadCase(filepath.Join("cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBrazil4HasPublishedFigures(t *testing.T) {
	c := readShipped(t, "brazil4")
	if len(c.Buses) != 5 || len(c.Thermals) != 126 || len(c.Lines) != 5 || len(c.Reservoirs) != 4 || c.Stages != 12 {
		t.Errorf("got %d buses, %d plants, %d lines, %d reservoirs, %d stages", len(c.Buses), len(c.Thermals), len(c.Lines), len(c.Reservoirs), c.Stages)
	}
	if c.DeficitCost != 1420.34 || c.SpillCost != 0.01 || c.Hours(11) != 730 {
		t.Errorf("deficit %v, spill %v, hours %v; want 1420.34, 0.01, 730", c.DeficitCost, c.SpillCost, c.Hours(11))
	}
	if b := c.Buses[4]; b.Name != "TRANSIT" || b.LoadMW != nil {
		t.Errorf("bus 4 is %+v, want TRANSIT without load", b)
	}
	s := c.Reservoirs[0]
	if s.Name != "SUDESTE" || s.MaxStorage != 204078.3 || s.InitialStorage != 38343.9 || s.InflowMean[11] != 40908.9 || s.InflowStd[0] != 15502.5 {
		t.Errorf("SUDESTE's reservoir is %+v", s)
	}
	// The deviations are those of the energy inflows from 1931 on: 0.2 to 0.9 of the mean.
	for _, r := range c.Reservoirs {
		for p, std := range r.InflowStd {
			if cv := std / r.InflowMean[p]; cv < 0.2 || cv > 1 {
				t.Errorf("%s, %s: the deviation is %.3f of the mean", r.Name, c.Periods[p], cv)
			}
		}
	}
}

// edit writes a copy of the toy case with one text replaced, and returns its folder.
func edit(t *testing.T, file, old, with string) string {
	t.Helper()
	dir := t.TempDir()
	found := false
	for _, name := range caseFiles {
		data, err := os.ReadFile(filepath.Join("cases", "toy", name))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if name == file {
			found = strings.Contains(text, old)
			text = strings.Replace(text, old, with, 1)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatalf("%s does not hold %q", file, old)
	}
	return dir
}

func TestCaseErrorNamesFileFieldAndLimits(t *testing.T) {
	for _, k := range []struct {
		name, file, old, with string
		want                  []string
	}{
		{"not JSON", "case.json", `"stages": 3,`, `"stages": ,`, []string{"case.json", "line 7", "invalid character"}},
		{"cut off", "case.json", "\"spill_cost\": 0\n}", `"spill_cost": 0`, []string{"case.json", "ends inside a value"}},
		{"more after the end", "case.json", "\"spill_cost\": 0\n}", "\"spill_cost\": 0\n}\n7", []string{"case.json", "unexpected text after the object"}},
		{"not an object", "lines.json", "{\n  \"lines\": []\n}", "[]", []string{"lines.json", "got a list", "want an object"}},
		{"format", "case.json", `"cohort-sddp-case"`, `"other"`, []string{"case.json: format", `got "other"`, `want "cohort-sddp-case"`}},
		{"version", "case.json", `"version": 1`, `"version": 2`, []string{"case.json: version", "got 2", "from 1 to 1"}},
		{"unknown field", "case.json", `"version": 1,`, `"version": 1, "color": 3,`, []string{"case.json: color", "unknown field", "hours_per_stage"}},
		{"case of a field", "case.json", `"stages"`, `"Stages"`, []string{"case.json: stages: missing", "case.json: Stages: unknown field"}},
		{"field twice", "case.json", `"stages": 3,`, `"stages": 3, "stages": 4,`, []string{"case.json: stages", "twice"}},
		{"missing field", "case.json", `"deficit_cost": 1000,`, ``, []string{"case.json: deficit_cost: missing", "want a number from 0"}},
		{"one stage", "case.json", `"stages": 3`, `"stages": 1`, []string{"case.json: stages", "got 1", "from 2 to 1200"}},
		{"half a stage", "case.json", `"stages": 3`, `"stages": 2.5`, []string{"case.json: stages", "got 2.5", "whole number"}},
		{"null", "case.json", `"stages": 3`, `"stages": null`, []string{"case.json: stages", "got null"}},
		{"text for a number", "case.json", `"spill_cost": 0`, `"spill_cost": "0"`, []string{"case.json: spill_cost", `got "0"`, "want a number"}},
		{"negative cost", "case.json", `"spill_cost": 0`, `"spill_cost": -1`, []string{"case.json: spill_cost", "got -1", "from 0 to"}},
		{"too large", "case.json", `"spill_cost": 0`, `"spill_cost": 1e400`, []string{"case.json: spill_cost", "got 1e400"}},
		{"no hours", "case.json", `"hours_per_stage": 1`, `"hours_per_stage": 0`, []string{"case.json: hours_per_stage", "got 0"}},
		{"no periods", "case.json", `["first", "second", "third"]`, `[]`, []string{"case.json: periods", "got 0 names"}},
		{"empty period", "case.json", `"second"`, `""`, []string{"case.json: periods[1]", "want a name"}},
		{"no bus", "buses.json", `{"name": "Valley", "load_mw": [80, 90, 145]}`, ``, []string{"buses.json: buses", "at least one"}},
		{"short series", "buses.json", `[80, 90, 145]`, `[80, 90]`, []string{"buses.json: buses[0].load_mw", "got 2 values", "3 numbers"}},
		{"negative load", "buses.json", `90`, `-90`, []string{"buses.json: buses[0].load_mw[1]", "got -90", "from 0"}},
		{"unknown bus field", "buses.json", `"load_mw"`, `"load"`, []string{"buses.json: buses[0].load: unknown field", "load_mw"}},
		{"same name", "thermals.json", `"Oil"`, `"Coal"`, []string{"thermals.json: thermals[1].name", `got "Coal"`, "once"}},
		{"unknown bus", "thermals.json", `"name": "Oil", "bus": "Valley"`, `"name": "Oil", "bus": "Hill"`, []string{"thermals.json: thermals[1].bus", `got "Hill"`, "buses.json"}},
		{"max below min", "thermals.json", `"min_mw": 0, "max_mw": 50`, `"min_mw": 60, "max_mw": 50`, []string{"thermals.json: thermals[0].max_mw", "got 50", "from 60"}},
		{"thermal is a number", "thermals.json", `"thermals": [`, `"thermals": [ 5,`, []string{"thermals.json: thermals[0]", "got 5", "want an object"}},
		{"list is an object", "thermals.json", `"thermals": [`, `"extra": {}, "thermals": [`, []string{"thermals.json: extra: unknown field", "thermals"}},
		{"too full", "reservoirs.json", `"initial_storage": 20`, `"initial_storage": 41`, []string{"reservoirs.json: reservoirs[0].initial_storage", "got 41", "from 0 to 40"}},
		{"deviation of nothing", "reservoirs.json", "[60, 30, 10],\n      \"inflow_std\": [0, 0, 0]", "[60, 30, 0],\n      \"inflow_std\": [0, 0, 1]", []string{"reservoirs.json: reservoirs[0].inflow_std[2]", "want 0 where inflow_mean is 0"}},
		{"line to itself", "lines.json", `[]`, `[{"from": "Valley", "to": "Valley", "direct_mw": 1, "reverse_mw": 1, "cost_per_mwh": 0}]`, []string{"lines.json: lines[0].to", "want another"}},
		{"must run", "thermals.json", `"min_mw": 0, "max_mw": 50`, `"min_mw": 81, "max_mw": 90`, []string{"thermals.json: thermals[0].min_mw", "stage 1 (first)", `plant "Coal" must run with 81 MW at bus "Valley"`, "load takes 80 MW and lines take 0 MW"}},
		{"short series of a plant", "thermals.json", `"max_mw": 50`, `"max_mw": [50, 60]`, []string{"thermals.json: thermals[0].max_mw", "got 2 values", "3 numbers"}},
		{"max below min in a period", "thermals.json", `"min_mw": 0, "max_mw": 50`, `"min_mw": [0, 20, 0], "max_mw": [50, 10, 5]`, []string{"thermals.json: thermals[0].max_mw[1]", "got 10", "from 20, which is min_mw"}},
		{"text for a series", "thermals.json", `"max_mw": 50`, `"max_mw": "50"`, []string{"thermals.json: thermals[0].max_mw", `got "50"`, "a list of 3, one per period"}},
		{"rate", "case.json", `"spill_cost": 0`, `"spill_cost": 0, "discount_rate": -0.1`, []string{"case.json: discount_rate", "got -0.1", "from 0 to 10"}},
		{"tiers beyond the load", "case.json", `"spill_cost": 0`, `"spill_cost": 0, "deficit_tiers": [{"share_of_load": 0.7, "cost_per_mwh": 1}, {"share_of_load": 0.7, "cost_per_mwh": 2}]`, []string{"case.json: deficit_tiers[1].share_of_load", "got 0.7"}},
		{"tiers that fall", "case.json", `"spill_cost": 0`, `"spill_cost": 0, "deficit_tiers": [{"share_of_load": 0.1, "cost_per_mwh": 9}, {"share_of_load": 0.1, "cost_per_mwh": 8}]`, []string{"case.json: deficit_tiers[1].cost_per_mwh", "got 8", "from 9 to 1000"}},
		{"stages of several lengths in MW-month", "case.json", `"hours_per_stage": 1`, `"hours_per_stage": [1, 2, 1]`, []string{"case.json: hours_per_stage", "want one length", "a MW-month is the energy of 1 MW over one stage"}},
		{"least storage above the largest", "reservoirs.json", `"initial_storage": 20`, `"initial_storage": 20, "min_storage": 41, "min_storage_penalty": 1`, []string{"reservoirs.json: reservoirs[0].min_storage", "got 41", "from 0 to 40"}},
		{"limit without a penalty", "reservoirs.json", `"initial_storage": 20`, `"initial_storage": 20, "min_outflow": 4`, []string{"reservoirs.json: reservoirs[0].min_outflow_penalty: missing"}},
		{"penalty without a limit", "reservoirs.json", `"initial_storage": 20`, `"initial_storage": 20, "min_outflow_penalty": 4`, []string{"reservoirs.json: reservoirs[0].min_outflow_penalty: unknown field", "min_outflow"}},
		{"downstream of itself", "reservoirs.json", `"initial_storage": 20`, `"initial_storage": 20, "productivity_mw_per_m3s": 1, "downstream": "Lake"`, []string{"reservoirs.json: reservoirs[0].downstream", `got "Lake"`, "another reservoir"}},
		{"blocks of half a stage", "case.json", `"spill_cost": 0`, `"spill_cost": 0, "blocks": [{"name": "peak", "hours_share": 0.5}]`, []string{"case.json: blocks", "add up to 0.5, want 1"}},
		{"list of loads without blocks", "buses.json", `[80, 90, 145]`, `[[80, 90, 145]]`, []string{"buses.json: buses[0].load_mw", "got 1 values, want a list of 3 numbers"}},
		{"absurd deviation", "reservoirs.json", `"inflow_std": [0, 0, 0]`, `"inflow_std": [0, 0, 1001]`, []string{"reservoirs.json: reservoirs[0].inflow_std[2]", "got 1001", "at most 100 times inflow_mean, which is 10"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			_, err := ReadCase(edit(t, k.file, k.old, k.with))
			if err == nil {
				t.Fatal("the case was read, want an error")
			}
			for _, w := range k.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error does not hold %q:\n%v", w, err)
				}
			}
		})
	}
}

// Reservoirs that do not fit together.
func TestCascadesThatDoNotFitAreErrors(t *testing.T) {
	lake := func(name, more string) string {
		return fmt.Sprintf(`{"name": %q, "bus": "Valley", "max_storage": 40, "initial_storage": 20, "max_generation_mw": 70,
			"inflow_mean": [60, 30, 10], "inflow_std": [0, 0, 0]%s}`, name, more)
	}
	const first, m3s = `"reservoirs": [`, `, "productivity_mw_per_m3s": 1`
	for _, k := range []struct{ name, more, want string }{
		{"two units", lake("A", m3s) + "," + lake("B", "") + ",", `reservoirs[1].productivity_mw_per_m3s: given for reservoir "A" or "B" only, want it for all reservoirs or for none`},
		{"a cascade of energy", lake("A", `, "downstream": "Lake"`) + ",", `reservoirs[0].downstream: got "Lake", want no such field without productivity_mw_per_m3s`},
		{"a circle", lake("A", m3s+`, "downstream": "B"`) + "," + lake("B", m3s+`, "downstream": "A"`) + ",", `reservoirs[0].downstream: got "B", from which the water returns to this reservoir`},
	} {
		_, err := ReadCase(edit(t, "reservoirs.json", first, first+k.more))
		if err == nil || !strings.Contains(err.Error(), k.want) {
			t.Errorf("%s: got %v, want %q", k.name, err, k.want)
		}
	}
}

// A load is one series for all blocks or one series per block.
func TestLoadOfBlocks(t *testing.T) {
	read := func(load string) (*Case, error) {
		dir := edit(t, "case.json", `"spill_cost": 0`, `"spill_cost": 0, "blocks": [{"name": "peak", "hours_share": 0.25}, {"name": "rest", "hours_share": 0.75}]`)
		err := os.WriteFile(filepath.Join(dir, "buses.json"), fmt.Appendf(nil, `{"buses": [{"name": "Valley", "load_mw": %s}]}`, load), 0o644)
		if err != nil {
			t.Fatal(err)
		}
		return ReadCase(dir)
	}
	c, err := read(`[ [100, 120, 160], [80, 90, 140]]`)
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Buses[0]; b.BlockLoadMW[0][1] != 120 || b.BlockLoadMW[1][2] != 140 || b.LoadMW[2] != 145 {
		t.Errorf("got %+v", b)
	}
	if c, err := read(`[100, 120, 160]`); err != nil || c.blockLoad(1, 0, 0) != 120 || c.blockLoad(1, 1, 0) != 120 {
		t.Errorf("one series: got %v", err)
	}
	for load, want := range map[string]string{
		`[[1, 2, 3]]`:             "buses[0].load_mw: got 1 lists, want 2 lists, one per block",
		`[[1, 2, 3], [1, 2]]`:     "buses[0].load_mw[1]: got 2 values, want a list of 3 numbers",
		`[[1, 2, 3], 4]`:          "buses[0].load_mw[1]: got 4, want a list of 3 numbers",
		`[[1, 2, 3], [1, -2, 3]]`: "buses[0].load_mw[1][1]: got -2, want a number from 0",
	} {
		if _, err := read(load); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", load, err, want)
		}
	}
}

// Tables of inflows.
func TestInflowTableErrors(t *testing.T) {
	const (
		openings    = "stage,probability,Lake\n1,1,60\n2,0.5,20\n2,0.5,40\n3,1,10\n"
		history     = "year,period,Lake\n1931,first,60\n1931,second,30\n1931,third,10\n1932,first,50\n1932,second,20\n1932,third,5\n"
		correlation = "reservoir,Lake\nLake,1\n"
		monthly     = "period,reservoir,Lake\nfirst,Lake,1\nsecond,Lake,1\nthird,Lake,1\n"
	)
	read := func(kind, file, text string) error {
		dir := edit(t, "case.json", `"spill_cost": 0`, fmt.Sprintf(`"spill_cost": 0, "inflow_model": %q`, kind))
		lake := `{"reservoirs": [{"name": "Lake", "bus": "Valley", "max_storage": 40, "initial_storage": 20, "max_generation_mw": 70`
		if kind == "correlated" {
			lake += `, "inflow_mean": [60, 30, 10], "inflow_std": [1, 1, 1]`
		}
		for name, data := range map[string]string{"reservoirs.json": lake + "}]}", file: text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		_, err := ReadCase(dir)
		return err
	}
	for _, k := range []struct{ kind, file, text, old, with, want string }{
		{"openings", "openings.csv", openings, "", "", ""},
		{"openings", "openings.csv", openings, "stage,probability", "\ufeffstage,probability", ""},
		{"history", "history.csv", history, "", "", ""},
		{"correlated", "correlation.csv", correlation, "", "", ""},
		{"par", "history.csv", history, "", "", ""},
		{"par", "history.csv", history, "60", "NA", `history.csv: line 2, column Lake: got "NA", want a number from 0`},
		{"random", "openings.csv", openings, "", "", `case.json: inflow_model: got "random", want lognormal, correlated, openings`},
		{"lognormal", "openings.csv", openings, "", "", "reservoirs[0].inflow_mean: missing"},
		{"history", "openings.csv", openings, "", "", `history.csv: missing; the inflow_model "history" of case.json needs it`},
		{"openings", "openings.csv", openings, "stage,probability,Lake", "stage,Lake,probability", "openings.csv: line 1: got the columns stage, Lake, probability, want the columns stage, probability, Lake"},
		{"openings", "openings.csv", openings, "Lake", "Sea", "openings.csv: line 1: got the columns stage, probability, Sea"},
		{"openings", "openings.csv", openings, "2,0.5,20", "2,0.5,20,3", "openings.csv: line 3: wrong number of fields"},
		{"openings", "openings.csv", openings, "0.5,20", "0.5,-20", `openings.csv: line 3, column Lake: got "-20", want a number from 0`},
		{"openings", "openings.csv", openings, "2,0.5", "4,0.5", `openings.csv: line 3, column stage: got "4", want a whole number from 1 to 3`},
		{"openings", "openings.csv", openings, "0.5", "0", `openings.csv: line 3, column probability: got "0", want a number above 0`},
		{"openings", "openings.csv", openings, "0.5", "0.4", "openings.csv: stage 2 has 2 openings whose probabilities add up to 0.9"},
		{"openings", "openings.csv", openings, "3,1,10\n", "", "openings.csv: stage 3 has 0 openings"},
		{"history", "history.csv", history, "1931,third,10\n", "", `history.csv: line 4: got period "first" of year "1932", want "third" of "1931": every period of a year, in order; seasons in case.json names other ones than those of the loads`},
		{"history", "history.csv", history, "1932,third,5\n", "", "history.csv: got 5 rows, want all 3 periods of 2 to 100000 years"},
		{"correlated", "correlation.csv", correlation, "Lake,1", "Lake,0.5", "correlation.csv: the correlation of Lake with itself is 0.5, want 1"},
		{"correlated", "correlation.csv", correlation, "\nLake,1", "\nSea,1", "correlation.csv: want one line for each reservoir, with the reservoirs Lake"},
		{"correlated", "correlation.csv", monthly, "", "", ""},
		{"correlated", "correlation.csv", monthly, "second,Lake,1\n", "", "correlation.csv: want one line for each period and reservoir"},
		{"correlated", "correlation.csv", monthly, "second", "forth", "correlation.csv: want one line for each period and reservoir"},
		{"correlated", "correlation.csv", monthly, "third,Lake,1", "third,Lake,0", "correlation.csv: third: the correlation of Lake with itself is 0, want 1"},
	} {
		err := read(k.kind, k.file, strings.Replace(k.text, k.old, k.with, 1))
		if k.want == "" && err != nil || k.want != "" && (err == nil || !strings.Contains(err.Error(), k.want)) {
			t.Errorf("%s: got %v, want %q", k.kind, err, k.want)
		}
	}
}

// The toy case without its last stage, whose cost its README gives as 4200 + (45 - v)*1000: the table of cuts
// that a training writes, with a cut of another stage. The cost is that of the whole case.
func TestTerminalCutsStandForLaterStages(t *testing.T) {
	const cuts = "stage,period,cut,alpha $,Lake $/MW-month\n1,first,1,1e6,-1\n2,second,1,49200,-1000\n"
	read := func(head, cuts string) (*Case, error) {
		dir := edit(t, "case.json", `"stages": 3`, `"stages": 2, `+head)
		if cuts != "" {
			if err := os.WriteFile(filepath.Join(dir, terminalFile), []byte(cuts), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return ReadCase(dir)
	}
	if c, err := read(`"terminal_stage": 2`, strings.SplitAfter(cuts, "\n")[0]); err != nil || c.Terminal != nil {
		t.Errorf("a table without cuts: got %v, want water without value (%v)", c, err)
	}
	c, err := read(`"terminal_stage": 2`, cuts)
	if err != nil {
		t.Fatal(err)
	}
	tr := trained(t, c, Options{Iterations: 5, Passes: 2})
	if lower, cost := tr.Policy.LowerBound, tr.Last().Upper.Mean; !within(lower, 11800) || !within(cost, 11800) {
		t.Errorf("the lower bound is %v and the cost %v, want 11800", lower, cost)
	}
	for _, k := range [][3]string{
		{`"terminal_stage": 2`, "", "terminal_cuts.csv: missing; the terminal_stage of case.json needs it"},
		{`"terminal_stage": 3`, cuts, "terminal_cuts.csv: no cuts of stage 3"},
		{`"terminal_stage": 0`, cuts, "case.json: terminal_stage: got 0, want a whole number from 1 to 1200"},
		{`"terminal_stage": 2`, strings.Replace(cuts, "MW-month", "hm3", 1), "terminal_cuts.csv: line 1: got the columns stage, period, cut, alpha $, Lake $/hm3"},
	} {
		if _, err := read(k[0], k[1]); err == nil || !strings.Contains(err.Error(), k[2]) {
			t.Errorf("got %v, want %q", err, k[2])
		}
	}
}

func TestInflowModelNeedsReservoirs(t *testing.T) {
	dir := edit(t, "case.json", `"spill_cost": 0`, `"spill_cost": 0, "inflow_model": "par"`)
	for name, text := range map[string]string{"reservoirs.json": `{"reservoirs": []}`, historyFile: "year,period\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ReadCase(dir); err == nil || !strings.Contains(err.Error(), `case.json: inflow_model: got "par", want none in a case without reservoirs`) {
		t.Errorf("got %v", err)
	}
}

func TestMissingCaseIsReported(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadCase(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: got %v, want os.ErrNotExist", err)
	}
	var field *FieldError
	if _, err := ReadCase(dir); !errors.As(err, &field) || !strings.HasSuffix(field.File, "case.json") || !strings.Contains(field.Text, "missing") {
		t.Errorf("empty folder: got %v, want it to name case.json", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCase(file); err == nil || !strings.Contains(err.Error(), "want a folder") {
		t.Errorf("a file: got %v, want that a folder is needed", err)
	}
}

func TestUpToTenCaseErrorsAreReported(t *testing.T) {
	_, err := ReadCase(edit(t, "thermals.json", `"thermals": [`, `"thermals": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,`))
	if err == nil || strings.Count(err.Error(), "want an object") != 10 || !strings.Contains(err.Error(), "and 2 more") {
		t.Errorf("got %v, want ten errors and the number of others", err)
	}
}

func TestCaseHashDependsOnFiguresNotLayout(t *testing.T) {
	base := readShipped(t, "toy").SHA256()
	read := func(file, old, with string) string {
		c, err := ReadCase(edit(t, file, old, with))
		if err != nil {
			t.Fatal(err)
		}
		return c.SHA256()
	}
	if got := read("case.json", `"stages": 3,`, "\n\n\"stages\":3 ,"); got != base {
		t.Error("white space changes the hash")
	}
	for _, k := range [][3]string{
		{"case.json", `"stages": 3`, `"stages": 4`}, {"buses.json", "145", "146"}, {"thermals.json", "50", "51"},
		{"reservoirs.json", "40", "41"}, {"case.json", `"spill_cost": 0`, `"spill_cost": 0.5`},
	} {
		if read(k[0], k[1], k[2]) == base {
			t.Errorf("%s with %s has the same hash", k[0], k[2])
		}
	}
}

// Reading any files ends with a valid case or with an error.
func FuzzCase(f *testing.F) {
	for _, name := range []string{"toy", "brazil4"} {
		text, err := readCaseText(filepath.Join("cases", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text[0], text[1], text[2], text[3], text[4])
	}
	f.Fuzz(func(t *testing.T, head, buses, thermals, reservoirs, lines []byte) {
		c, err := parseCase("case", caseText{head, buses, thermals, reservoirs, lines})
		if err != nil {
			return
		}
		if c.Stages < 2 || len(c.SHA256()) != 64 || c.Describe() == "" {
			t.Errorf("an invalid case was read: %+v", c)
		}
		for _, r := range c.Reservoirs {
			if len(r.InflowMean) != len(c.Periods) || r.Bus >= len(c.Buses) || r.InitialStorage > r.MaxStorage {
				t.Errorf("an invalid reservoir was read: %+v", r)
			}
		}
	})
}

// Reading any table ends with a case whose inflows can be drawn, or with an error.
func FuzzInflowTables(f *testing.F) {
	f.Add("openings", []byte("stage,probability,Lake\n1,1,60\n2,0.5,20\n2,0.5,40\n3,1,10\n"))
	f.Add("history", []byte("year,period,Lake\n1931,first,60\n1931,second,30\n1931,third,10\n1932,first,50\n1932,second,20\n1932,third,5\n"))
	f.Add("correlated", []byte("reservoir,Lake\nLake,1\n"))
	f.Add("correlated", []byte("period,reservoir,Lake\nfirst,Lake,1\nsecond,Lake,1\nthird,Lake,1\n"))
	var years strings.Builder
	years.WriteString("year,period,Lake\n")
	for y := range 40 {
		fmt.Fprintf(&years, "%d,first,%d\n%d,second,%d\n%d,third,7\n", y, y*y%17, y, y*y%17+y%3, y)
	}
	f.Add("par", []byte(years.String()))
	toy, err := readCaseText(filepath.Join("cases", "toy"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind string, table []byte) {
		text := toy
		text[0] = bytes.Replace(toy[0], []byte(`"stages"`), fmt.Appendf(nil, `"inflow_model": %q, "stages"`, kind), 1)
		for i := range caseTables {
			text[len(caseFiles)+i] = table
		}
		c, err := parseCase("case", text)
		if err != nil {
			return
		}
		noise := NewNoise(c, 1, 3)
		state := c.initialState()
		for _, sampling := range Samplings {
			if _, err := sampling.checked(c); err != nil {
				continue
			}
			for stage := range c.Stages {
				inflow := make([]float64, len(c.Reservoirs))
				noise.onPath(inflow, sampling, 5, stage)
				if par := c.par(); par != nil {
					par.advance(inflow, state[1:], slices.Clone(state[1:]), c.Period(stage))
				}
				if math.IsNaN(inflow[0]) || math.IsInf(inflow[0], 0) {
					t.Errorf("%s, %s: stage %d has the inflow %v", kind, sampling, stage+1, inflow)
				}
			}
		}
	})
}

// A wrong or missing field is reported once, not again by the fields that it limits.
func TestWrongLimitIsReportedOnce(t *testing.T) {
	for _, k := range []struct{ old, with, want string }{
		{`"max_storage": 40, `, ``, "reservoirs.json: reservoirs[0].max_storage: missing, want a number from 0 to 1e+12"},
		{`"max_storage": 40`, `"max_storage": -1`, "reservoirs.json: reservoirs[0].max_storage: got -1, want a number from 0 to 1e+12"},
		{"\"inflow_mean\": [60, 30, 10],\n      \"inflow_std\": [0, 0, 0]", `"inflow_std": [0, 1, 2]`, "reservoirs.json: reservoirs[0].inflow_mean: missing, want a list of 3 numbers, one per period, each from 0 to 1e+12"},
	} {
		dir := edit(t, "reservoirs.json", k.old, k.with)
		_, err := ReadCase(dir)
		if want := filepath.Join(dir, k.want); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Must-run output that load and lines of several buses together cannot take names those buses only.
func TestMustRunErrorNamesBuses(t *testing.T) {
	c := readShipped(t, "brazil4")
	c.Thermals[0].MinMW, c.Thermals[0].MaxMW = Series{55000}, Series{55000} // more than SUDESTE's load, its neighbors take the rest
	if err := c.checkStages("case"); err != nil {
		t.Fatal(err)
	}
	c.Thermals[0].MinMW, c.Thermals[0].MaxMW = Series{64000}, Series{64000}
	err := c.checkStages("case")
	if err == nil {
		t.Fatal("64 GW at one bus were accepted")
	}
	for _, want := range []string{"case/thermals.json: thermals[0].min_mw: in stage ", c.Thermals[0].Name, `at bus "SUDESTE"`, "lines take 12500 MW away"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

func TestProbableMistakesAreWarnings(t *testing.T) {
	for _, name := range []string{"toy", "brazil4"} {
		if got := readShipped(t, name).Warnings(); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
	c := readShipped(t, "brazil4")
	c.DeficitCost = 930
	c.Reservoirs[1].InflowStd[4] = 3 * c.Reservoirs[1].InflowMean[4]
	got := strings.Join(c.Warnings(), "\n")
	for _, want := range []string{`deficit_cost is 930: a deficit costs less than 8 thermal plants, such as "NORTE-07" at bus "NORTE" (1165.12)`, `inflow_std of reservoir "SUL" in period "May" is 25317.6, 3 times the mean of 8439.2`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s\nwant %q in it", got, want)
		}
	}
	if text := c.Describe(); !strings.Contains(text, "warning: deficit_cost is 930") || len(c.Facts().Warnings) != len(c.Warnings()) {
		t.Errorf("the description has no warning:\n%s", text)
	}
	for r := range c.Reservoirs {
		for p, mean := range c.Reservoirs[r].InflowMean {
			c.Reservoirs[r].InflowStd[p] = 2.5 * mean
		}
	}
	if all := c.Warnings(); len(all) != maxWarnings+1 || !strings.HasPrefix(all[maxWarnings], "and ") {
		t.Errorf("%d warnings, the last %q", len(all), all[len(all)-1])
	}
}
