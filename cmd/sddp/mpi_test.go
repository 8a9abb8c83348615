//go:build cgo && linux && !cohort_nompi

package main

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/cohort-hpc/cohort/internal/mpitest"
)

// Under the launcher of every MPI library, and started by cohort run over it, the training gives
// what a single rank does, however it is divided: the bits of the cuts and of the bounds.
func TestTrainOverMPI(t *testing.T) {
	want, tool := splitResult(t), cohortTool(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, l mpitest.Launcher) {
		for _, s := range splits {
			ranks, threads := s[0], s[1]
			args := slices.Concat([]string{exe}, splitArgs, []string{"--threads", strconv.Itoa(threads)})
			sameResult(t, l.Command(ranks, args...), ranks, threads, want)
			if ranks == 4 || threads == 1 {
				byCohort := exec.Command(tool, append([]string{"run", "--backend", "mpi", "--tag=false", "-n", strconv.Itoa(ranks)}, args...)...)
				byCohort.Env = append(os.Environ(), "COHORT_MPI_LIB="+l.Library.Path)
				sameResult(t, byCohort, ranks, threads, want)
			}
		}
		// A library that only one thread may call.
		funneled := l.Command(2, slices.Concat([]string{exe}, splitArgs, []string{"--threads", "2"})...)
		funneled.Env = append(funneled.Env, "COHORT_MPI_THREAD=funneled")
		sameResult(t, funneled, 2, 2, want)
	})
}
