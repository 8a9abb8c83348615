package sddp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
)

// writerEnv makes this test binary write files repeatedly to the folder it names.
const writerEnv = "SDDP_TEST_WRITE_FOREVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		writeForever(dir)
	}
	os.Exit(m.Run())
}

// block returns the n-th content of a file. Its length shows whether it is complete.
func block(n int) []byte {
	return append(bytes.Repeat([]byte(strconv.Itoa(n%10)), 300000+n), '.')
}

// writeForever writes new contents of two files until it is killed, and a line before each.
func writeForever(dir string) {
	o := &Output{dir}
	for n := 0; ; n++ {
		fmt.Println(n)
		if err := o.write(context.Background(), []File{{"a", block(n)}, {"b", block(n)}}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}

func TestKilledWriterLeavesWholeFiles(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		dir := t.TempDir()
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), writerEnv+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for range 2 + round {
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Fatal("the writer exited")
		}
		for _, name := range []string{"a", "b"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatalf("round %d: after a full round: %v", round, err)
			}
			if n := len(data) - 300001; n < 0 || !bytes.Equal(data, block(n)) {
				t.Errorf("round %d: %s holds %d bytes, which is not a complete file", round, name, len(data))
			}
		}
	}
}

// names returns the names in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestInterruptedWriteLeavesOldFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := (&Output{dir}).write(ctx, []File{{"a", []byte("new")}, {"b", []byte("new")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the interruption", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "old" {
		t.Errorf("a holds %q (%v), want the old content", data, err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %v, want a alone", got)
	}
}

func TestFailedWriteNamesFileAndLeavesNoTemporaries(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "b", "in the way"), 0o777); err != nil {
		t.Fatal(err)
	}
	err := (&Output{dir}).write(context.Background(), []File{{"a", []byte("x")}, {"b", []byte("x")}, {"c", []byte("x")}})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "b")) {
		t.Errorf("got %v, want an error that names b", err)
	}
	if got := strings.Join(names(t, dir), " "); got != "a b" {
		t.Errorf("the folder holds %q, want a and the folder b", got)
	}
}

func TestUnwritableFolderFailsOnAllRanks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err := cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		for _, bad := range []string{file, filepath.Join(file, "below")} {
			if _, err := OpenOutput(world, bad); err == nil || !strings.Contains(err.Error(), bad) {
				return fmt.Errorf("rank %d: %s: got %v, want an error that names it", world.Rank(), bad, err)
			}
		}
		o, err := OpenOutput(world, filepath.Join(dir, "new", "folder"))
		if err != nil {
			return err
		}
		return o.Write(context.Background(), world, []File{{"a", []byte("x")}})
	})
	if err != nil {
		t.Error(err)
	}
	if got := names(t, filepath.Join(dir, "new", "folder")); len(got) != 1 || got[0] != "a" {
		t.Errorf("the new folder holds %v, want a alone", got)
	}
}

// report returns the report of a training of a case.
func report(t *testing.T, name string, opt Options) *Report {
	t.Helper()
	c := readShipped(t, name)
	r := &Report{Case: c, Ranks: 1, Backend: "local", Seconds: 1.25}
	err := cohort.Run(context.Background(), 1, func(world *cohort.Comm) (err error) {
		if r.Training, err = Train(context.Background(), world, c, opt); err != nil {
			return err
		}
		r.Policy = r.Training.Policy
		r.Simulation, err = Simulate(context.Background(), world, c, r.Policy, SimulateOptions{Scenarios: 20})
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
		opt  Options
	}{
		{"brazil4", Options{Iterations: 5, Passes: 3, Openings: 3}},
		{"toy", Options{Iterations: 1, Passes: 1, Openings: 1}}, // no interval, a single point
	} {
		t.Run(k.name, func(t *testing.T) {
			r := report(t, k.name, k.opt)
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
			if p, err := ParsePolicy(PolicyFile, got[PolicyFile], r.Case); err != nil || p.Pool.SHA256() != s.CutsSHA256 {
				t.Errorf("%s: %v", PolicyFile, err)
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
