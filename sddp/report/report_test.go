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
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/sddp"
)

// trained returns a training of a case, simulated.
func trained(t *testing.T, name string, opt sddp.Options) *Run {
	t.Helper()
	c, err := sddp.ReadCase(filepath.Join("..", "..", "cases", name))
	if err != nil {
		t.Fatal(err)
	}
	r := &Run{Case: c, Ranks: 1, Backend: "local", Seconds: 1.25}
	err = cohort.Run(context.Background(), 1, func(world *cohort.Comm) (err error) {
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
			for _, svg := range []string{"convergence.svg", "storage.svg"} {
				checkSVG(t, svg, got[svg])
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

// checkSVG fails the test if an SVG is not well-formed or draws outside its frame.
func checkSVG(t *testing.T, name string, data []byte) {
	t.Helper()
	var width, height float64
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
		for _, a := range start.Attr {
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
				if err != nil || !(v >= 0 && v <= width) {
					t.Errorf("%s: %s has %s = %q outside the drawing", name, start.Name.Local, a.Name.Local, a.Value)
				}
			case "y", "y1", "y2", "cy":
				if v = math.Abs(v); err != nil || !(v <= height) { // text is mirrored
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
