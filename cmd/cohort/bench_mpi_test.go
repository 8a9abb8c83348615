//go:build cgo && linux && !cohort_nompi

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// TestBenchMeasuresEveryOperationOverMPI measures every operation in jobs that this command starts with
// the launcher of the library that COHORT_MPI_LIB names.
func TestBenchMeasuresEveryOperationOverMPI(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		t.Setenv("COHORT_MPI_LIB", l.Library.Path)
		for i, op := range sample(benchOps, 2) {
			if !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			status, stdout, stderr := run(t, "bench", "--json", "--backend", "mpi", "-n", "2", "--sizes", "0,8,1000", "--reps", "1", op.name)
			if status != 0 || stderr != "" {
				t.Errorf("%s: status %d, %s", op.name, status, stderr)
			}
			sizes := []int{0, 8, 1000}
			if op.sizeless {
				sizes = []int{0}
			}
			checkResults(t, measured(t, stdout), op.name, library(l), 2, sizes...)
		}
	})
}

// TestBenchJoinsAnMPIJob measures as a rank of a job that an MPI launcher
// started, at the thread levels there are.
func TestBenchJoinsAnMPIJob(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		type wrong struct {
			ranks   int
			env     string
			args    []string
			message string
		}
		join := func(n int, env string, args ...string) (status int, stdout, stderr string) {
			cmd := l.Command(n, append([]string{exe, "bench", "--json", "--reps", "1"}, args...)...)
			cmd.Env = append(cmd.Env, envCommand+"=1", env)
			return finish(t, cmd)
		}
		for i, level := range sample([]string{"multiple", "serialized", "funneled", "single"}, 0, 2) {
			if !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			status, stdout, stderr := join(2, "COHORT_MPI_THREAD="+level, "--sizes", "64", "p2p")
			if status != 0 {
				t.Fatalf("%s: status %d: %s", level, status, stderr)
			}
			checkResults(t, measured(t, stdout), "p2p", library(l), 2, 64)
		}
		for i, c := range sample([]wrong{
			{2, "", []string{"-n", "3", "p2p"}, "-n 3: this job has 2 ranks"},
			{2, "", []string{"--backend", "shm", "p2p"}, "start cohort bench without that launcher"},
			{1, "", []string{"--backend", "mpi", "p2p"}, "this job has 1"},
			{2, "COHORT_MPI_THREAD=two", []string{"p2p"}, "COHORT_MPI_THREAD"},
		}, 0, 1) {
			if !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			if status, stdout, stderr := join(c.ranks, c.env, c.args...); status == 0 || strings.Contains(stdout, "usec") || !strings.Contains(stderr+stdout, c.message) {
				t.Errorf("%d ranks, %s %q: status %d\n%s%s", c.ranks, c.env, c.args, status, stdout, stderr)
			}
		}
	})
}

// library returns the name that results give to a library, from its file.
func library(l mpitest.Launcher) string {
	version := l.Library.Version
	if l.Library.Vendor == "Open MPI" {
		version = "v" + version // as it writes it itself
	}
	return l.Library.Vendor + " " + version
}
