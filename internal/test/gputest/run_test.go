//go:build linux

package gputest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/accel/cuda"
	"github.com/cohort-hpc/cohort/internal/test/need"
)

var script = filepath.Join("..", "..", "..", "scripts", "gpu-test")

// build runs scripts/gpu-test build and returns the folder it makes, whose program run starts the
// others. With goCommand, the script calls that program in place of go.
func build(t *testing.T, goCommand string) string {
	t.Helper()
	need.Program(t, "bash")
	need.Program(t, "awk")
	t.Setenv("CGO_ENABLED", "") // the programs are to be those of a user who sets nothing
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	if goCommand != "" {
		bin := t.TempDir()
		if err := os.WriteFile(filepath.Join(bin, "go"), []byte(goCommand), 0o777); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if status, out := run(script, "build", dir); status != 0 {
		t.Fatalf("%s build: status %d\n%s", script, status, out)
	}
	return dir
}

// noCompiler stands in for go: it makes empty programs, and fails on command lines that the script
// should not use.
const noCompiler = `#!/bin/sh
[ "$CGO_ENABLED $GOOS" = "0 linux" ] || exit 1
case "$*" in
"test -c -ldflags=-s -w -o "*"/cuda.test ./internal/accel/cuda" | "test -c -ldflags=-s -w -o "*"/tensor.test ./tensor") ;;
"build -ldflags=-s -w -o "*"/cohort ./cmd/cohort") ;;
*) echo "wrong arguments: $*"; exit 1 ;;
esac
while [ "$1" != -o ]; do shift; done
: >"$2"
`

// patience is how long a program may run. On a machine with a GPU the programs take minutes.
const patience = 20 * time.Minute

// run returns the status and the output of a program; the status is -1 if it did not start or did
// not end.
func run(name string, args ...string) (status int, out string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return -1, fmt.Sprintf("%s\nstill running after %v", b, patience)
	case err != nil && !errors.As(err, &exit):
		return -1, err.Error()
	}
	if exit != nil {
		return exit.ExitCode(), string(b)
	}
	return 0, string(b)
}

// row is a line of results.json, about a test or a benchmark. Figures holds a benchmark's results
// by unit.
type row struct {
	Package, Test, Result, Benchmark string
	Seconds                          float64
	N                                int
	Figures                          map[string]any
}

// rows reads results.json.
func rows(t *testing.T, results string) (all []row) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(results, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	all = []row{}
	for line := range bytes.Lines(b) {
		var r row
		figures := make(map[string]any)
		if err := errors.Join(json.Unmarshal(line, &r), json.Unmarshal(line, &figures)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, name := range []string{"package", "test", "result", "seconds", "benchmark", "n"} {
			delete(figures, name)
		}
		if len(figures) > 0 {
			r.Figures = figures
		}
		all = append(all, r)
	}
	return all
}

// TestProgramsRunOnThisMachine builds the programs and runs them here. Without a GPU they print the
// reason, and the results of an earlier run are removed. With a GPU everything passes, which takes
// minutes.
func TestProgramsRunOnThisMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: the programs of scripts/gpu-test build without cgo and run; make test-all runs it")
	}
	dir, results := build(t, ""), t.TempDir()
	old := []string{"results.json", "cuda-tests.txt", "tensor-benchmarks.txt"}
	for _, name := range old {
		if err := os.WriteFile(filepath.Join(results, name), []byte("of an earlier run\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	_, reason := cuda.Driver().Device(0)
	status, out := run(filepath.Join(dir, "run"), results)
	machine, err := os.ReadFile(filepath.Join(results, "machine.txt"))
	if err != nil || !strings.Contains(string(machine), "TestGPUDevices") {
		t.Errorf("machine.txt: %v\n%s", err, machine)
	}
	if reason != nil {
		if want := "gpu-test: there is no GPU that can be used here: " + reason.Error() + "\n"; status != 3 || out != want {
			t.Errorf("status %d, want 3; output\n%s\nwant\n%s", status, out, want)
		}
		for _, name := range old {
			if _, err := os.Stat(filepath.Join(results, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s of an earlier run was kept: %v", name, err)
			}
		}
		return
	}
	if status != 0 || strings.Count(out, "\npassed: ") != 4 {
		t.Errorf("status %d; output\n%s", status, out)
	}
	names := make(map[string]bool)
	for _, r := range rows(t, results) {
		if r.Result == "FAIL" {
			t.Errorf("%+v", r)
		}
		name, _, _ := strings.Cut(r.Benchmark, "-")
		names[r.Package+" "+r.Test+strings.Split(name, "/")[0]] = true
	}
	for _, name := range []string{"cuda TestGPUSuite", "cuda BenchmarkGPUCopy", "tensor TestGPUSameBits", "tensor BenchmarkGPUStaged"} {
		if !names[name] {
			t.Errorf("no result of %s, only of %v", name, names)
		}
	}
}

func TestWrongArgumentsPrintUsage(t *testing.T) {
	dir := build(t, noCompiler)
	for _, line := range [][]string{
		{script}, {script, "build"}, {script, "build", ""}, {script, "make", dir}, {script, "build", dir, "more"},
		{filepath.Join(dir, "run")}, {filepath.Join(dir, "run"), ""}, {filepath.Join(dir, "run"), "a", "b"},
	} {
		if status, out := run(line[0], line[1:]...); status != 2 || !strings.Contains(out, "run RESULTS") {
			t.Errorf("%q: status %d\n%s", line, status, out)
		}
	}
}

// standIn takes the place of a test program. It prints the log that belongs to its arguments.
const standIn = `#!/bin/sh
dir=$(dirname "$0") name=$(basename "$0" .test)
case $* in
"-test.v -test.run ^TestGPUDevices\$") kind=devices ;;
"-test.v "*"-test.run ^TestGPU") kind=tests ;;
"-test.v "*"-test.run ^\$ -test.bench ^BenchmarkGPU "*) kind=benchmarks ;;
*) echo "wrong arguments: $*"; exit 99 ;;
esac
cat "$dir/$name-$kind.log"
exit "$(cat "$dir/$name-$kind.status" 2>/dev/null || echo 0)"
`

const devices = `=== RUN   TestGPUDevices
    cuda_test.go:50: device 0: Model X, 7 of 8 MiB free
--- PASS: TestGPUDevices (0.01s)
PASS
`

const benchmarks = `goos: linux
goarch: amd64
cpu: Some Processor @ 2.10GHz
BenchmarkGPUCopy
BenchmarkGPUCopy/pinned/1048576
BenchmarkGPUCopy/pinned/1048576-16         	   12345	     98765 ns/op	10616.75 MB/s	        95.20 %bound
BenchmarkGPUCopy/pinned/1048576-16         	       1	1234567890 ns/op	     +Inf MB/s	     1e+06 x/s
BenchmarkGPUStart-16 looks at 4 events
PASS
`

// TestRunReportsResults lets stand-ins print the output of tests and benchmarks, and checks the
// status, the report and results.json.
func TestRunReportsResults(t *testing.T) {
	dir := build(t, noCompiler)
	measured := []row{
		{Package: "cuda", Benchmark: "BenchmarkGPUCopy/pinned/1048576-16", N: 12345,
			Figures: map[string]any{"ns/op": 98765.0, "MB/s": 10616.75, "%bound": 95.2}},
		{Package: "cuda", Benchmark: "BenchmarkGPUCopy/pinned/1048576-16", N: 1,
			Figures: map[string]any{"ns/op": 1234567890.0, "MB/s": nil, "x/s": 1e6}},
	}
	for _, k := range []struct {
		name   string
		logs   map[string]string // output, by program and kind
		ends   map[string]string // exit status if not 0, by program and kind
		status int
		report []string
		rows   []row // nil: no results.json
	}{{
		name:   "all pass",
		logs:   map[string]string{"cuda-devices": devices, "cuda-tests": devices, "cuda-benchmarks": benchmarks},
		report: []string{"device 0: Model X, 7 of 8 MiB free", "passed: tests of cuda", "passed: benchmarks of cuda"},
		rows:   append([]row{{Package: "cuda", Test: "TestGPUDevices", Result: "PASS", Seconds: 0.01}}, measured...),
	}, {
		name: "some fail",
		logs: map[string]string{"cuda-devices": devices, "cuda-benchmarks": benchmarks, "cuda-tests": `=== RUN   TestGPUSuite
=== RUN   TestGPUSuite/copies
=== RUN   TestGPUSuite/say_"a\b"_(0.5s)
    copies.go:12: 3 bytes differ --- FAIL: not a line of its own (1s)
    copies.go:13: another program prints
        --- FAIL: what has no time
--- PASS: what has none either
=== RUN   TestGPUSuite/two
    test.go:3: one device only
--- FAIL: TestGPUSuite (12.25s)
    --- PASS: TestGPUSuite/copies (1.50s)
    --- FAIL: TestGPUSuite/say_"a\b"_(0.5s) (10.75s)
    --- SKIP: TestGPUSuite/two (0.00s)
--- PASS: TestGPUDevices (0.00s)
FAIL
`},
		ends:   map[string]string{"cuda-tests": "1"},
		status: 1,
		report: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (status 1): tests of cuda, see RESULTS/cuda-tests.txt", "passed: benchmarks of cuda"},
		rows: append([]row{
			{Package: "cuda", Test: "TestGPUSuite", Result: "FAIL", Seconds: 12.25},
			{Package: "cuda", Test: "TestGPUSuite/copies", Result: "PASS", Seconds: 1.5},
			{Package: "cuda", Test: `TestGPUSuite/say_"a\b"_(0.5s)`, Result: "FAIL", Seconds: 10.75},
			{Package: "cuda", Test: "TestGPUSuite/two", Result: "SKIP"},
			{Package: "cuda", Test: "TestGPUDevices", Result: "PASS"},
		}, measured...),
	}, {
		name: "a crash, and benchmarks that fail",
		logs: map[string]string{"cuda-devices": devices, "cuda-tests": "=== RUN   TestGPUSuite\nSIGSEGV: segmentation violation\n",
			"cuda-benchmarks": "BenchmarkGPUCopy\n    cuda_test.go:57: no device\n--- SKIP: BenchmarkGPUCopy\nBenchmarkGPUStart\nBenchmarkGPUStart/event\n" +
				"    cuda_test.go:99: invalid\n--- FAIL: BenchmarkGPUStart/event\n--- FAIL: BenchmarkGPUStart\nFAIL\n"},
		ends:   map[string]string{"cuda-tests": "2", "cuda-benchmarks": "1"},
		status: 1,
		report: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (status 2): tests of cuda, see RESULTS/cuda-tests.txt",
			"FAILED (status 1): benchmarks of cuda, see RESULTS/cuda-benchmarks.txt"},
		rows: []row{
			{Package: "cuda", Benchmark: "BenchmarkGPUCopy", Result: "SKIP"},
			{Package: "cuda", Benchmark: "BenchmarkGPUStart/event", Result: "FAIL"},
			{Package: "cuda", Benchmark: "BenchmarkGPUStart", Result: "FAIL"},
		},
	}, {
		name: "all skipped",
		logs: map[string]string{"cuda-devices": devices,
			"cuda-tests":      "=== RUN   TestGPUSuite\n--- SKIP: TestGPUSuite (0.00s)\nPASS\n",
			"cuda-benchmarks": "BenchmarkGPUCopy\n    cuda_test.go:57: no device\n--- SKIP: BenchmarkGPUCopy\nPASS\n"},
		status: 1,
		report: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (none ran): tests of cuda, see RESULTS/cuda-tests.txt",
			"FAILED (none ran): benchmarks of cuda, see RESULTS/cuda-benchmarks.txt"},
		rows: []row{{Package: "cuda", Test: "TestGPUSuite", Result: "SKIP"}, {Package: "cuda", Benchmark: "BenchmarkGPUCopy", Result: "SKIP"}},
	}, {
		name:   "nothing at all",
		logs:   map[string]string{"cuda-devices": devices, "cuda-tests": "testing: warning: no tests to run\nPASS\n", "cuda-benchmarks": "PASS\n"},
		status: 1,
		report: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (none ran): tests of cuda, see RESULTS/cuda-tests.txt",
			"FAILED (none ran): benchmarks of cuda, see RESULTS/cuda-benchmarks.txt"},
		rows: []row{},
	}, {
		name:   "no device",
		logs:   map[string]string{"cuda-devices": "=== RUN   TestGPUDevices\n    cuda_test.go:37: no device: the reason\n--- SKIP: TestGPUDevices (0.00s)\nPASS\n"},
		status: 3,
		report: []string{"gpu-test: there is no GPU that can be used here: the reason"},
	}, {
		name:   "a device that fails",
		logs:   map[string]string{"cuda-devices": "--- FAIL: TestGPUDevices (0.00s)\n"},
		ends:   map[string]string{"cuda-devices": "1"},
		status: 1,
		report: []string{"--- FAIL: TestGPUDevices (0.00s)", "gpu-test: the devices cannot be used, see above"},
	}} {
		t.Run(k.name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "programs of a test")
			results := filepath.Join(at, "results")
			text, err := os.ReadFile(filepath.Join(dir, "run"))
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{"run": string(text), "cuda.test": standIn, "cohort": "#!/bin/sh\necho \"cohort $*\"\n"}
			for name, log := range k.logs {
				files[name+".log"] = log
			}
			for name, status := range k.ends {
				files[name+".status"] = status
			}
			if err := os.Mkdir(at, 0o777); err != nil {
				t.Fatal(err)
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o777); err != nil {
					t.Fatal(err)
				}
			}
			status, out := run(filepath.Join(at, "run"), results)
			got := strings.Split(strings.TrimSpace(strings.ReplaceAll(out, results, "RESULTS")), "\n")
			slices.Sort(got)
			slices.Sort(k.report)
			if status != k.status || !slices.Equal(got, k.report) {
				t.Errorf("status %d, want %d; output\n%s\nwant\n%s", status, k.status, strings.Join(got, "\n"), strings.Join(k.report, "\n"))
			}
			if machine, err := os.ReadFile(filepath.Join(results, "machine.txt")); err != nil || !strings.Contains(string(machine), "\ncohort doctor\n") {
				t.Errorf("machine.txt: %v\n%s", err, machine)
			}
			if k.rows == nil {
				if _, err := os.Stat(filepath.Join(results, "results.json")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("results.json was written: %v", err)
				}
				return
			}
			if got := rows(t, results); !reflect.DeepEqual(got, k.rows) {
				t.Errorf("results.json holds\n%+v\nwant\n%+v", got, k.rows)
			}
		})
	}
}
