package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"

	"github.com/cohort-hpc/cohort/internal/cli"
)

// measured reads what cohort bench --json prints, strictly.
func measured(t *testing.T, text string) (all []result) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	for {
		var r result
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		all = append(all, r)
	}
}

// checkResults checks everything about results that does not depend on the machine.
func checkResults(t *testing.T, all []result, op, lib string, ranks int, sizes ...int) {
	t.Helper()
	var got []int
	for _, r := range all {
		got = append(got, r.Bytes)
		if r.Op != op || r.Impl != "cohort" || r.Lib != lib || r.Ranks != ranks || r.Usec <= 0 {
			t.Errorf("got %+v, want %s on %s with %d ranks", r, op, lib, ranks)
		}
		if together := ranks > 1 && runtime.GOOS == "linux" && runtime.NumCPU() > 1; (r.Handover > 0) != together {
			t.Errorf("%+v: handover_ns is %v; ranks with two processors of one machine: %v", r, r.Handover, together)
		}
		// Both are rounded to four digits after the point.
		if want := float64(r.Bytes) / r.Usec / 1e3; math.Abs(r.Gbps-want) > 0.0002+want*0.01 {
			t.Errorf("%+v: gbps is %v, want %v", r, r.Gbps, want)
		}
	}
	if !slices.Equal(got, sizes) {
		t.Errorf("%s: sizes %v, want %v", op, got, sizes)
	}
}

// processBackend is the backend whose ranks are processes here.
func processBackend(t *testing.T) string {
	if runtime.GOOS != "linux" {
		t.Skip("ranks as processes need the shm backend, which is for Linux")
	}
	return "shm"
}

// TestBenchMeasuresEveryOperation measures every operation, and has the command print those of a backend. With -short the
// command measures one with message sizes and one without.
func TestBenchMeasuresEveryOperation(t *testing.T) {
	sizes := []int{0, 8, 1000}
	err := cohort.Run(t.Context(), 3, func(world *cohort.Comm) error {
		for _, op := range benchOps {
			for _, bytes := range sizes {
				if usec, err := timeOp(world, &op, bytes, 1); err != nil || world.Rank() == 0 && usec <= 0 {
					return fmt.Errorf("%s of %d bytes: %v µs, %w", op.name, bytes, usec, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for i, backend := range []string{processBackend(t), "local"} {
		for _, op := range sample(benchOps, []int{2, 8}[i]) {
			status, stdout, stderr := run(t, "bench", "--json", "--backend", backend, "-n", "3", "--sizes", "0,8,1000", "--reps", "1", op.name)
			if status != 0 || stderr != "" {
				t.Errorf("%s on %s: status %d, %s", op.name, backend, status, stderr)
			}
			want := sizes
			if op.sizeless {
				want = []int{0}
			}
			checkResults(t, measured(t, stdout), op.name, backend, 3, want...)
		}
	}
}

func TestBenchJoinsAJob(t *testing.T) {
	processBackend(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := run(t, "run", "-n", "2", exe, "bench", "--json", "--sizes", "64", "--reps", "1", "p2p")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	checkResults(t, measured(t, stdout), "p2p", "shm", 2, 64)
	status, _, stderr = run(t, "run", "-n", "1", exe, "bench", "p2p")
	if status != cli.StatusUsage || !strings.Contains(stderr, "this job has 1") {
		t.Errorf("p2p of one rank: status %d: %s", status, stderr)
	}
}

func TestBenchPrintsTableAndPlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plot.svg")
	status, stdout, stderr := run(t, "bench", "--backend", "local", "--sizes", "8,512,4096", "--reps", "1", "--plot", file, "allreduce")
	if status != 0 || strings.Count(stdout, "\n") != 5 || !strings.Contains(stdout, "allreduce on local, 2 ranks") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	text, err := os.ReadFile(file) // well-formed: see the tests of internal/chart
	if err != nil {
		t.Fatal(err)
	}
	for _, color := range []string{"#1f77b4", "#d62728"} {
		if n := len(regexp.MustCompile(`<circle [^>]*"`+color+`"`).FindAll(text, -1)); n != 3 {
			t.Errorf("%d points of color %s, want 3", n, color)
		}
	}
	for _, want := range []string{"allreduce: local, 2 ranks", "message size (bytes)", "time of one call", "throughput", "B/s"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture does not say %q", want)
		}
	}
	status, _, stderr = run(t, "bench", "--backend", "local", "--reps", "1", "--plot", file, "barrier")
	if status != 1 || !strings.Contains(stderr, "no message sizes") {
		t.Errorf("a picture of barrier: status %d: %s", status, stderr)
	}
}

// TestCommandsFailIfOutputCannotBeWritten has what commands print have no room.
func TestCommandsFailIfOutputCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full, on which every write fails: %v", err)
	}
	defer full.Close()
	dir := t.TempDir()
	err = cohort.Run(t.Context(), 1, func(world *cohort.Comm) error {
		f, err := os.Create(filepath.Join(dir, "rank-0000.flight"))
		return errors.Join(err, world.DumpFlight(f), f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range sample([]string{
		"bench --backend local --reps 1 --sizes 8,16 allreduce", "bench --json --backend local --reps 1 --sizes 8,16 allreduce",
		"report " + dir, "report --json " + dir, "doctor", "doctor --json",
	}, 0, 3, 4) {
		cmd := cohortCommand(t, strings.Fields(line)...)
		cmd.Env = append(cmd.Env, "COHORT_MPI_LIB=/none")
		errs := new(strings.Builder)
		cmd.Stdout, cmd.Stderr = full, errs
		if cmd.Run(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%s: status %d, want 1; stderr:\n%s", line, cmd.ProcessState.ExitCode(), errs)
		}
	}
}
