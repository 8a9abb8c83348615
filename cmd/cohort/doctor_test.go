package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

func TestDoctorPrintsJSON(t *testing.T) {
	cmd := cohortCommand(t, "doctor", "--json")
	cmd.Env = append(cmd.Env, "COHORT_BAKEND=shm", "COHORT_TIMEOUT=1m", "GOMAXPROCS=3")
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
	if text := found["environment/variables"].Value; text != "COHORT_TIMEOUT=1m" {
		t.Errorf("got %q", text)
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
