package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/flight"
)

func TestDoctorPrintsJSON(t *testing.T) {
	cmd := cohortCommand(t, "doctor", "--json")
	dir := t.TempDir()
	records := []string{filepath.Join(dir, flight.FileName(0)), filepath.Join(dir, "stats")} // of a job that failed here before
	for _, name := range records {
		if err := os.WriteFile(name, []byte("earlier"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd.Env = append(cmd.Env, "COHORT_BAKEND=shm", "COHORT_TIMEOUT=1m", "GOMAXPROCS=3", flight.EnvDir+"="+dir, flight.EnvStats+"="+records[1])
	status, stdout, stderr := finish(t, cmd)
	var out struct {
		Version, System string
		Findings        []finding
	}
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		t.Fatalf("%v:\n%s%s", err, stdout, stderr)
	}
	found := map[string]finding{}
	failed := false
	for _, f := range out.Findings {
		found[f.Group+"/"+f.Name] = f
		failed = failed || f.State == fail
		switch f.State {
		case ok, warn, fail, none:
		default:
			t.Errorf("%+v: no such state", f)
		}
	}
	if failed != (status == 1) || status > 1 {
		t.Errorf("status %d, and a check failed: %v\n%s", status, failed, stdout)
	}
	want := map[string]state{
		"environment/COHORT_BAKEND": warn, "environment/GOMAXPROCS": warn, "environment/variables": ok,
		"backends/local": ok, "backends/tcp": ok, "building/go": ok,
	}
	for name, s := range want {
		if f, there := found[name]; !there || f.State != s || f.Value == "" {
			t.Errorf("%s: got %+v, want %s", name, f, s)
		}
	}
	if text := found["environment/COHORT_BAKEND"].Value; !strings.Contains(text, "did you mean COHORT_BACKEND?") {
		t.Errorf("got %q", text)
	}
	if text := found["environment/variables"].Value; text != "COHORT_TIMEOUT=1m "+flight.EnvDir+"="+dir+" "+flight.EnvStats+"="+records[1] {
		t.Errorf("got %q", text)
	}
	for _, name := range records {
		if text, err := os.ReadFile(name); string(text) != "earlier" {
			t.Errorf("doctor has replaced a record of the job to diagnose: %s: %d bytes, %v", name, len(text), err)
		}
	}
	if _, there := found["backends/mpi"]; !there {
		t.Error("nothing on backends/mpi")
	}
	if runtime.GOOS != "linux" {
		return
	}
	for _, name := range []string{
		"processors/usable", "processors/affinity", "processors/NUMA", "processors/control groups", "memory/machine",
		"pinning/ranks", "job/job", "environment/solver threads", "limits/control groups", "kernel/single copy", "kernel//dev/shm",
		"backends/shm",
	} {
		if _, there := found[name]; !there {
			t.Errorf("nothing on %s", name)
		}
	}
	for _, name := range []string{"backends/shm", "backends/tcp"} {
		if f := found[name]; f.State == fail || !strings.Contains(f.Value, "two processes joined and exchanged messages") {
			t.Errorf("%s: %+v, want a job of two processes", name, f)
		}
	}
}

func TestDoctorKnowsVariablesOfDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for row := range strings.Lines(string(text)) {
		if cell := strings.Split(row, "|"); len(cell) > 1 && !strings.Contains(cell[1], "=") { // = has a setting and its value
			documented = append(documented, regexp.MustCompile("COHORT_[A-Z_]+").FindAllString(cell[1], -1)...)
		}
	}
	known := slices.Sorted(slices.Values(knownVariables))
	if slices.Sort(documented); !slices.Equal(known, documented) {
		t.Errorf("doctor knows\n%v, docs/environment.md has\n%v", known, documented)
	}
}

func TestDoctorPrintsFindingsByGroup(t *testing.T) {
	var d diagnosis
	d.add("processors", "usable", ok, "2 of 2", "")
	d.add("backends", "shm", fail, "no memory", "buy some")
	d.add("backends", "mpi", none, "no library", "")
	var b bytes.Buffer
	d.print(&b)
	for _, want := range []string{"\nprocessors\n", "  ok    usable", "\nbackends\n", "  fail  shm", "→ buy some", "  none  mpi"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

func TestDoctorCountsFailuresAndWarnings(t *testing.T) {
	for _, c := range []struct {
		states []state
		want   string
	}{
		{[]state{ok}, "\nready\n"},
		{[]state{ok, warn}, "\nready; 1 check has a warning\n"},
		{[]state{warn, warn, none}, "\nready; 2 checks have warnings\n"},
		{[]state{fail, ok}, "\n1 of 2 checks failed\n"},
		{[]state{fail, warn, ok}, "\n1 of 3 checks failed; 1 check has a warning\n"},
	} {
		var d diagnosis
		for _, s := range c.states {
			d.add("group", "name", s, "value", "")
		}
		var b bytes.Buffer
		if d.print(&b); !strings.HasSuffix(b.String(), c.want) {
			t.Errorf("%v: no %q at the end of:\n%s", c.states, c.want, b.String())
		}
	}
}
