package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp"
)

// trained returns a training of a shipped case, simulated.
func trained(t *testing.T, name string, opt sddp.Options) *Run {
	t.Helper()
	c, err := sddp.ReadCase(filepath.Join("..", "cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return trainedCase(t, c, opt)
}

// trainedCase returns a training of a case, simulated.
func trainedCase(t *testing.T, c *sddp.Case, opt sddp.Options) *Run {
	t.Helper()
	r := &Run{Case: c, Ranks: 1, Backend: "local", Seconds: 1.25}
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) (err error) {
		if r.Training, err = sddp.Train(context.Background(), world, c, opt); err != nil {
			return err
		}
		r.Policy = r.Training.Policy
		r.Simulation, err = sddp.Simulate(context.Background(), world, c, r.Policy, sddp.SimulateOptions{Scenarios: 20})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// thermalCase is cobre's D02 without the reservoir: one bus, one plant, two months (deterministic.rs there).
func thermalCase() *sddp.Case {
	return &sddp.Case{
		Name: "thermal", Currency: "$", Stages: 2, Periods: []string{"first", "second"}, HoursPerStage: sddp.Series{730}, DeficitCost: 1000,
		Buses:    []sddp.Bus{{Name: "B0", LoadMW: []float64{80, 80}}},
		Thermals: []sddp.Thermal{{Name: "T0", MinMW: sddp.Series{0}, MaxMW: sddp.Series{100}, CostPerMWh: sddp.Series{50}}},
	}
}

// A case without reservoirs has no chart of storage and no water values, and 80 MW at 50 $/MWh cost 2 920 000.
func TestReportOfCaseWithoutReservoirs(t *testing.T) {
	r := trainedCase(t, thermalCase(), sddp.Options{Iterations: 2, Passes: 2, Openings: 2})
	if got := r.Simulation.Stages[1].Cost; math.Abs(got-2920000) > 1e-3 {
		t.Errorf("a stage costs %v, want 2 920 000", got)
	}
	for _, f := range r.figures() {
		if f.name == "storage" {
			t.Error("there is a chart of storage")
		}
	}
	if page, err := r.Page(); err != nil || strings.Contains(string(page), "Water values") {
		t.Errorf("the page has water values (%v)", err)
	}
}

// In cobre's D02 the first month has both plants, so water is worth the fuel that it replaces: 50 $ for what a
// MWh takes. Storage is in hm3.
func TestReportOfCaseInVolume(t *testing.T) {
	c := thermalCase()
	c.Reservoirs = []sddp.Reservoir{{
		Name: "H0", MaxStorage: 200, InitialStorage: 100, MaxGenerationMW: sddp.Series{50}, Productivity: 1,
		InflowMean: []float64{40, 10}, InflowStd: []float64{0, 0},
	}}
	r := trainedCase(t, c, sddp.Options{Iterations: 6, Passes: 2, Openings: 2})
	if want := 23635000.0 / 9; math.Abs(r.Policy.LowerBound-want) > 1e-6*want {
		t.Errorf("the lower bound is %v, want %v", r.Policy.LowerBound, want)
	}
	first := r.Simulation.Stages[0]
	if math.Abs(first.WaterValue[0]-50) > 1e-6 || math.Abs(first.MarginalCost[0]-50) > 1e-6 {
		t.Errorf("a MWh of water is worth %v, of load %v, want 50", first.WaterValue[0], first.MarginalCost[0])
	}
	if !strings.Contains(string(r.storage().svg(wide)), ">hm3<") || !strings.Contains(string(r.cutsCSV()), "H0 $/hm3") {
		t.Error("the unit of storage is missing")
	}
}

// With multi-cut the table of cuts says which opening of the next stage a cut is for.
func TestCutsOfOpeningsNameThem(t *testing.T) {
	c := thermalCase()
	r := trainedCase(t, c, sddp.Options{Iterations: 2, Passes: 2, Openings: 3, MultiCut: true})
	lines := strings.Split(strings.TrimSpace(string(r.cutsCSV())), "\n")
	if got := len(lines) - 1; got != 3*(c.Stages-1) || !strings.HasPrefix(lines[0], "stage,period,cut,opening,alpha") || !strings.HasPrefix(lines[3], "1,") || strings.Split(lines[3], ",")[3] != "3" {
		t.Errorf("got %d cuts:\n%s", got, strings.Join(lines, "\n"))
	}
	if got := r.Summary(); !strings.Contains(got, "openings, seed 0; a cut for each opening\n") {
		t.Errorf("the summary does not say so:\n%s", got)
	}
}

func TestReportFilesHoldResults(t *testing.T) {
	for _, k := range []struct {
		name string
		opt  sddp.Options
	}{
		{"brazil4", sddp.Options{Iterations: 5, Passes: 3, Openings: 3}},
		{"toy", sddp.Options{Iterations: 1, Passes: 1, Openings: 1}}, // no interval, a single point
	} {
		t.Run(k.name, func(t *testing.T) {
			r := trained(t, k.name, k.opt)
			files, err := r.Files()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]byte{}
			for _, f := range files {
				got[f.Name] = f.Data
			}
			for _, f := range r.figures() {
				checkSVG(t, f.name, f.chart.svg(wide))
				checkSVG(t, f.name+" on a narrow screen", f.chart.svg(narrow))
			}
			rows, err := csv.NewReader(bytes.NewReader(got["convergence.csv"])).ReadAll()
			if err != nil || len(rows) != 1+k.opt.Iterations || rows[0][1] != "lower_bound" {
				t.Errorf("convergence.csv: %d rows, %v", len(rows), err)
			} else if v, err := strconv.ParseFloat(rows[len(rows)-1][1], 64); err != nil || v != r.Policy.LowerBound {
				t.Errorf("convergence.csv ends at %v, want %v", rows[len(rows)-1][1], r.Policy.LowerBound)
			}
			var s struct {
				LowerBound float64 `json:"lower_bound"`
				CutsSHA256 string  `json:"cuts_sha256"`
				Stages     []struct {
					Buses      []map[string]any `json:"buses"`
					Reservoirs []map[string]any `json:"reservoirs"`
				} `json:"stages"`
			}
			if err := json.Unmarshal(got["summary.json"], &s); err != nil {
				t.Error(err)
			}
			if s.LowerBound != r.Policy.LowerBound || s.CutsSHA256 != r.Policy.Pool.SHA256() || len(s.Stages) != r.Case.Stages ||
				len(s.Stages[0].Buses) != len(r.Case.Buses) || len(s.Stages[0].Reservoirs) != len(r.Case.Reservoirs) {
				t.Errorf("summary.json differs: %+v", s)
			}
			if p, err := sddp.ParsePolicy(sddp.PolicyFile, got[sddp.PolicyFile], r.Case); err != nil || p.Pool.SHA256() != s.CutsSHA256 {
				t.Errorf("%s: %v", sddp.PolicyFile, err)
			}
			for _, r.Buses = range []bool{true, false} {
				text := r.Summary()
				for _, b := range r.Case.Buses {
					if has := strings.Contains(text, "\n"+b.Name+", means of the scenarios: power"); has != (r.Buses && b.Name != "TRANSIT") {
						t.Errorf("with buses %v, the summary has a table for %s: %v", r.Buses, b.Name, has)
					}
				}
			}
		})
	}
}

// The tables have the solution that the README of the toy case computes by hand.
func TestTablesHaveSolutionByHand(t *testing.T) {
	r := trained(t, "toy", sddp.Options{Iterations: 5, Passes: 2})
	for _, k := range []struct {
		name          string
		data          []byte
		where, column string
		want          []float64
	}{
		{"plants.csv", r.plantsCSV(), "Lake", "generation_mw", []float64{40, 30, 50}},
		{"plants.csv", r.plantsCSV(), "Coal", "generation_mw", []float64{40, 50, 50}},
		{"plants.csv", r.plantsCSV(), "Oil", "generation_mw", []float64{0, 10, 40}},
		{"reservoirs.csv", r.reservoirsCSV(), "Lake", "water_value_per_mwh", []float64{20, 80, 1000}},
		{"reservoirs.csv", r.reservoirsCSV(), "Lake", "water_value_p90", []float64{20, 80, 1000}},
		{"reservoirs.csv", r.reservoirsCSV(), "Lake", "end_storage_p10", []float64{40, 40, 0}},
		{"buses.csv", r.busesCSV(), "Valley", "deficit_probability", []float64{0, 0, 1}},
		{"buses.csv", r.busesCSV(), "Valley", "marginal_cost_p50", []float64{20, 80, 1000}},
		{"cuts.csv", r.cutsCSV(), "second", "Lake $/MW-month", []float64{-1000}},
		{"scenarios.csv", r.scenariosCSV(), "1", "cost", []float64{11800}},
		{"scenarios.csv", r.scenariosCSV(), "20", "deficit_mwh", []float64{5}},
		{"scenarios.csv", r.scenariosCSV(), "20", "stages_with_deficit", []float64{1}},
	} {
		rows, err := csv.NewReader(bytes.NewReader(k.data)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		column := slices.Index(rows[0], k.column)
		if column < 0 {
			t.Fatalf("%s: no column %s in %v", k.name, k.column, rows[0])
		}
		var got []float64
		for _, row := range rows[1:] {
			if slices.Contains(row[:min(4, column)], k.where) {
				v, err := strconv.ParseFloat(row[column], 64)
				if err != nil {
					t.Errorf("%s: %v", k.name, err)
				}
				got = append(got, math.Round(1e6*v)/1e6)
			}
		}
		if !slices.Equal(got, k.want) {
			t.Errorf("%s: %s of %s is %v, want %v", k.name, k.column, k.where, got, k.want)
		}
	}
}

// The page needs no other file, and names from the case are text in it.
func TestPageIsSelfContained(t *testing.T) {
	r := trained(t, "toy", sddp.Options{Iterations: 2, Passes: 2})
	r.Case.Name, r.Case.Reservoirs[0].Name = `<b>&"`, `<i>lake</i>`
	page, err := r.Page()
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, bad := range []string{"<b>", "<i>", "src=", "href=", "url(", "@import", "NaN", "<script"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	for _, want := range []string{"&lt;b&gt;", "Lower bound", "CVaR", "Water values", "11\u2009800"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(text, "<svg"); n != 2*len(r.figures()) {
		t.Errorf("%d charts, want %d", n, 2*len(r.figures()))
	}
}

// With a risk the page and the summary give the gap as unknown, and there is no chart of it.
func TestReportSaysThatGapIsUnknownWithRisk(t *testing.T) {
	r := trained(t, "brazil4", sddp.Options{Iterations: 3, Passes: 3, Openings: 3, Risk: sddp.Risk{Lambda: 0.5, Alpha: 0.4}})
	page, err := r.Page()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(page), r.Summary()} {
		if !strings.Contains(text, "unknown") || !strings.Contains(strings.ReplaceAll(text, "\u00a0", " "), "CVaR of the costliest 40 %") {
			t.Errorf("no word of the risk in\n%.2000s", text)
		}
	}
	if n := len(r.convergence().plots); n != 1 {
		t.Errorf("%d plots of the convergence, want one", n)
	}
}

// The labels of stages are at most 14, and the same periods of every year have one.
func TestStageLabelsAreFewAndAlikeEveryYear(t *testing.T) {
	c := &sddp.Case{Periods: strings.Fields("January February March April May June July August September October November December"), HoursPerStage: sddp.Series{730}}
	for _, k := range []struct {
		stages int
		want   string
	}{
		{5, "January February March April May"},
		{12, "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"},
		{24, "Jan/year 1 Mar May Jul Sep Nov Jan/year 2 Mar May Jul Sep Nov"},
		{60, "Jan/year 1 Jul Jan/year 2 Jul Jan/year 3 Jul Jan/year 4 Jul Jan/year 5 Jul"},
		{240, "Jan/year 1 Jan/year 3 Jan/year 5 Jan/year 7 Jan/year 9 Jan/year 11 Jan/year 13 Jan/year 15 Jan/year 17 Jan/year 19"},
	} {
		c.Stages = k.stages
		var got []string
		for _, tick := range stageTicks(c, true) {
			got = append(got, strings.ReplaceAll(tick.Label, "\n", "/"))
		}
		if strings.Join(got, " ") != k.want {
			t.Errorf("%d stages: got %v, want %v", k.stages, got, k.want)
		}
	}
}

// checkSVG fails the test if an SVG is not well-formed or draws outside its frame.
func checkSVG(t *testing.T, name string, data []byte) {
	t.Helper()
	var width, height float64
	turned := false
	seen := map[string]int{}
	dec := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		seen[start.Name.Local]++
		across, along := width, height
		if turned { // the element in a group that is turned by 90 degrees
			across, along = height, width
		}
		turned = false
		for _, a := range start.Attr {
			turned = turned || strings.HasPrefix(a.Value, "rotate(")
			v, err := strconv.ParseFloat(strings.TrimSuffix(a.Value, "pt"), 64)
			switch a.Name.Local {
			case "width":
				if start.Name.Local == "svg" {
					width = v
				}
			case "height":
				if start.Name.Local == "svg" {
					height = v
				}
			case "x", "x1", "x2", "cx":
				if err != nil || !(v >= 0 && v <= across) {
					t.Errorf("%s: %s has %s = %q outside the drawing", name, start.Name.Local, a.Name.Local, a.Value)
				}
			case "y", "y1", "y2", "cy":
				if v = math.Abs(v); err != nil || !(v <= along) { // text is mirrored
					t.Errorf("%s: %s has %s = %q outside the drawing", name, start.Name.Local, a.Name.Local, a.Value)
				}
			case "d":
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: a path holds %q", name, a.Value)
				}
			}
		}
	}
	if seen["title"] != 1 || seen["path"] == 0 || seen["text"] < 5 {
		t.Errorf("%s: holds %v, want a title, lines and their names", name, seen)
	}
}

func TestTicksHaveRoundGroupedNumbers(t *testing.T) {
	for _, k := range []struct {
		lo, hi float64
		want   string
	}{
		{0, 1.06, "[0 0.5 1]"},
		{0, 28, "[0 25 5 10 15 20]"},
		{0, 212000, "[0 100 000 200 000]"},
		{0, 0.7, "[0 0.3 0.6 0.1 0.2 0.4 0.5]"},
	} {
		var got []string
		for _, tick := range (groupedTicks{}).Ticks(k.lo, k.hi) {
			got = append(got, strings.ReplaceAll(tick.Label, "\u2009", " "))
		}
		if fmt.Sprint(got) != k.want {
			t.Errorf("from %v to %v: got %v, want %s", k.lo, k.hi, got, k.want)
		}
	}
}
