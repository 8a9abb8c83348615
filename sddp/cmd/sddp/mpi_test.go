//go:build cgo && linux && !cohort_nompi

package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// With the launcher of every MPI library, and with cohort run, the training gives the bits of a single rank
// for any split. With -short two libraries take turns.
func TestTrainOverMPI(t *testing.T) {
	want, tool := splitResult(t), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for i, s := range sampledSplits() {
			if !mpitest.Turn(i, l.Library.Vendor) {
				continue
			}
			ranks, threads := s[0], s[1]
			args := slices.Concat([]string{exe}, splitArgs, []string{"--threads", strconv.Itoa(threads)})
			if threads > 1 || !testing.Short() {
				sameResult(t, l.Command(ranks, args...), ranks, threads, want)
			}
			if threads == 1 {
				byCohort := exec.Command(tool, append([]string{"run", "--backend", "mpi", "--tag=false", "-n", strconv.Itoa(ranks)}, args...)...)
				byCohort.Env = append(os.Environ(), "COHORT_MPI_LIB="+l.Library.Path)
				sameResult(t, byCohort, ranks, threads, want)
			}
		}
		if testing.Short() {
			return
		}
		// Only one thread may call the library.
		funneled := l.Command(2, slices.Concat([]string{exe}, splitArgs, []string{"--threads", "2"})...)
		funneled.Env = append(funneled.Env, "COHORT_MPI_THREAD=funneled")
		sameResult(t, funneled, 2, 2, want)
		resilient(t, l.Command(2, slices.Concat([]string{exe}, splitArgs, []string{"--resilient", "--threads", "1"})...), want)
	})
}

// resilient runs a training with --resilient. A library without support for it fails at the start, with one
// error.
func resilient(t *testing.T, cmd *exec.Cmd, want result) {
	t.Helper()
	cmd.Env = append(cmd.Env, asCommand+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err == nil { // supported
		got := lastLine(t, out.String())
		want.Ranks, want.Seconds = got.Ranks, got.Seconds
		if got != want {
			t.Errorf("%v: %+v, want %+v", cmd, got, want)
		}
		return
	}
	said := regexp.MustCompile(`(?m)^sddp: .*not supported.*$`).FindAllString(errs.String(), -1)
	result := strings.Contains(out.String(), "{") // MPICH's mpiexec may report the status there, without a result
	if cmd.ProcessState.ExitCode() != 1 || len(said) != 1 || result || strings.Contains(errs.String(), "lower bound") {
		t.Errorf("%v: ended with %v, output %q, said\n%s\nwant status 1 and one line of sddp that says what is not supported, before any work", cmd, err, &out, &errs)
	}
}
