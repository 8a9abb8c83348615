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
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/accel/cuda"
	"github.com/cohort-hpc/cohort/internal/need"
)

var script = filepath.Join("..", "..", "scripts", "gpu-test")

// folder is where the tests of this package have what the script builds.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "gputest-*"); err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// built has the script build, once: where nothing is in Go's cache this takes half a minute.
var built = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(folder, "not", "there yet")
	if status, out := run(script, "build", dir); status != 0 {
		return "", fmt.Errorf("%s build: status %d\n%s", script, status, out)
	}
	return dir, nil
})

// build returns the folder with the programs, and run, which runs them.
func build(t *testing.T) string {
	t.Helper()
	need.Program(t, "bash")
	need.Program(t, "awk")
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// patience is after how long a program is taken for stuck: those of a machine with a GPU take minutes.
const patience = 20 * time.Minute

// run returns the status of a program, -1 if it could not be run or did not end, and what it prints.
func run(name string, args ...string) (status int, out string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return -1, fmt.Sprintf("%s\nno end after %v", b, patience)
	case err != nil && !errors.As(err, &exit):
		return -1, err.Error()
	}
	if exit != nil {
		return exit.ExitCode(), string(b)
	}
	return 0, string(b)
}

// row is a line of results.json: of a test, or of a benchmark, whose figures are in a map by their units.
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

// TestRun builds, and runs on this machine. Without a GPU that ends with the reason, and there are no results,
// not even those of an earlier run. With one all passes; it takes minutes then.
func TestRun(t *testing.T) {
	dir, results := build(t), t.TempDir()
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
			t.Errorf("status %d, want 3, and it prints\n%s\nwant\n%s", status, out, want)
		}
		for _, name := range old {
			if _, err := os.Stat(filepath.Join(results, name)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is there: %v", name, err)
			}
		}
		return
	}
	if status != 0 || strings.Count(out, "\npassed: ") != 4 {
		t.Errorf("status %d, and it prints\n%s", status, out)
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
			t.Errorf("there is no %s in the results, but %v", name, names)
		}
	}
}

// TestUsage gives command lines that are wrong.
func TestUsage(t *testing.T) {
	dir := build(t)
	for _, line := range [][]string{
		{script}, {script, "build"}, {script, "build", ""}, {script, "make", dir}, {script, "build", dir, "more"},
		{filepath.Join(dir, "run")}, {filepath.Join(dir, "run"), ""}, {filepath.Join(dir, "run"), "a", "b"},
	} {
		if status, out := run(line[0], line[1:]...); status != 2 || !strings.Contains(out, "run RESULTS") {
			t.Errorf("%q: status %d\n%s", line, status, out)
		}
	}
}

// A stand-in for a program of tests prints what it is given, by what it is to run.
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

// TestResults has programs print what tests and benchmarks do, and reads what becomes of it.
func TestResults(t *testing.T) {
	dir := build(t)
	measured := []row{
		{Package: "cuda", Benchmark: "BenchmarkGPUCopy/pinned/1048576-16", N: 12345,
			Figures: map[string]any{"ns/op": 98765.0, "MB/s": 10616.75, "%bound": 95.2}},
		{Package: "cuda", Benchmark: "BenchmarkGPUCopy/pinned/1048576-16", N: 1,
			Figures: map[string]any{"ns/op": 1234567890.0, "MB/s": nil, "x/s": 1e6}},
	}
	for _, k := range []struct {
		name   string
		logs   map[string]string // what a program prints, by name and kind
		ends   map[string]string // with which status, if not 0
		status int
		says   []string
		rows   []row // nil: there is no results.json
	}{{
		name: "all pass",
		logs: map[string]string{"cuda-devices": devices, "cuda-tests": devices, "cuda-benchmarks": benchmarks},
		says: []string{"device 0: Model X, 7 of 8 MiB free", "passed: tests of cuda", "passed: benchmarks of cuda"},
		rows: append([]row{{Package: "cuda", Test: "TestGPUDevices", Result: "PASS", Seconds: 0.01}}, measured...),
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
		says:   []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (status 1): tests of cuda, see RESULTS/cuda-tests.txt", "passed: benchmarks of cuda"},
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
		says: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (status 2): tests of cuda, see RESULTS/cuda-tests.txt",
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
		says: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (none ran): tests of cuda, see RESULTS/cuda-tests.txt",
			"FAILED (none ran): benchmarks of cuda, see RESULTS/cuda-benchmarks.txt"},
		rows: []row{{Package: "cuda", Test: "TestGPUSuite", Result: "SKIP"}, {Package: "cuda", Benchmark: "BenchmarkGPUCopy", Result: "SKIP"}},
	}, {
		name:   "nothing at all",
		logs:   map[string]string{"cuda-devices": devices, "cuda-tests": "testing: warning: no tests to run\nPASS\n", "cuda-benchmarks": "PASS\n"},
		status: 1,
		says: []string{"device 0: Model X, 7 of 8 MiB free", "FAILED (none ran): tests of cuda, see RESULTS/cuda-tests.txt",
			"FAILED (none ran): benchmarks of cuda, see RESULTS/cuda-benchmarks.txt"},
		rows: []row{},
	}, {
		name:   "no device",
		logs:   map[string]string{"cuda-devices": "=== RUN   TestGPUDevices\n    cuda_test.go:37: no device: the reason\n--- SKIP: TestGPUDevices (0.00s)\nPASS\n"},
		status: 3,
		says:   []string{"gpu-test: there is no GPU that can be used here: the reason"},
	}, {
		name:   "a device that fails",
		logs:   map[string]string{"cuda-devices": "--- FAIL: TestGPUDevices (0.00s)\n"},
		ends:   map[string]string{"cuda-devices": "1"},
		status: 1,
		says:   []string{"--- FAIL: TestGPUDevices (0.00s)", "gpu-test: the devices cannot be used, see above"},
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
			said := strings.Split(strings.TrimSpace(strings.ReplaceAll(out, results, "RESULTS")), "\n")
			slices.Sort(said)
			slices.Sort(k.says)
			if status != k.status || !slices.Equal(said, k.says) {
				t.Errorf("status %d, want %d; it prints\n%s\nwant\n%s", status, k.status, strings.Join(said, "\n"), strings.Join(k.says, "\n"))
			}
			if machine, err := os.ReadFile(filepath.Join(results, "machine.txt")); err != nil || !strings.Contains(string(machine), "\ncohort doctor\n") {
				t.Errorf("machine.txt: %v\n%s", err, machine)
			}
			if k.rows == nil {
				if _, err := os.Stat(filepath.Join(results, "results.json")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("there are results: %v", err)
				}
				return
			}
			if got := rows(t, results); !reflect.DeepEqual(got, k.rows) {
				t.Errorf("results.json has\n%+v\nwant\n%+v", got, k.rows)
			}
		})
	}
}
