package npb_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/bench/npb"
	"github.com/cohort-hpc/cohort/internal/test/programs"
)

// program returns the path of a kernel, or of cohort.
func program(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(programs.Build(t, "cmd/cohort", "bench/npb/..."), name)
}

// kernels returns the names of the kernels, which are the folders here with a program.
func kernels(t *testing.T) (names []string) {
	t.Helper()
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("found no kernels: %v", err)
	}
	for _, m := range mains {
		names = append(names, filepath.Dir(m))
	}
	return names
}

// classes are the problems that tests solve.
func classes() []string {
	if testing.Short() {
		return []string{"S"}
	}
	return []string{"S", "W", "A"}
}

// report runs a kernel and returns what it prints. A kernel that is not verified ends with an error.
func report(t *testing.T, cmd *exec.Cmd) (r npb.Report) {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out, stderr.String())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v printed %q: %v", cmd, out, err)
	}
	if !r.Verified || r.Seconds <= 0 || r.Communication[0] > r.Communication[1] || r.Communication[1] > r.Seconds {
		t.Errorf("%v: the report is %+v", cmd, r)
	}
	return r
}

// alone returns the report of a kernel on one rank.
func alone(t *testing.T, kernel, class string) npb.Report {
	t.Helper()
	r := report(t, exec.Command(program(t, kernel), "-class", class, "-json"))
	if r.Ranks != 1 || r.Backend != "local" {
		t.Errorf("alone on %d ranks and backend %s", r.Ranks, r.Backend)
	}
	return r
}

// sameBits checks that a report of ranks on a backend has the values that one rank has.
func sameBits(t *testing.T, got npb.Report, ranks int, backend string, want npb.Report) {
	t.Helper()
	if got.Ranks != ranks || got.Backend != backend || !reflect.DeepEqual(got.Checks, want.Checks) {
		t.Errorf("%d ranks on %s, want %d on %s; they give %+v, one rank %+v", got.Ranks, got.Backend, ranks, backend, got.Checks, want.Checks)
	}
}

// Every kernel gives the published values, with the same bits on 1, 2 and 4 ranks and on every backend. With -short it
// leaves out two ranks.
func TestKernelsGivePublishedValues(t *testing.T) {
	for _, kernel := range kernels(t) {
		for _, class := range classes() {
			t.Run(kernel+"/"+class, func(t *testing.T) {
				want := alone(t, kernel, class)
				for _, ranks := range []int{2, 4} {
					if ranks == 2 && testing.Short() {
						continue
					}
					for _, backend := range []string{"shm", "tcp"} {
						cmd := exec.Command(program(t, "cohort"), "run", "-n", fmt.Sprint(ranks), "--backend", backend, program(t, kernel), "-class", class, "-json")
						cmd.Env = append(os.Environ(), "COHORT_TCP_SHM=0")
						sameBits(t, report(t, cmd), ranks, backend, want)
					}
				}
			})
		}
	}
}

func TestMainRefusesWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"-class", "Z"}, {"-class", "S", "A"}} {
		out, err := exec.Command(program(t, kernels(t)[0]), args...).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 2 || !strings.Contains(string(out), "want one class of A, B, C, S, W, and no arguments") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}
