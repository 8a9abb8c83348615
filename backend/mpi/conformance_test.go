//go:build cgo && linux

package mpi_test

import (
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpitest"
)

// families are the MPI libraries that the suite runs under.
var families = map[string]mpifind.Family{"mpich": mpifind.MPICH, "openmpi": mpifind.OpenMPI}

// ft is the options of the launchers that a test adds.
var ft []string

// More ranks run than there are processors: libraries that wait by spinning must give way.
var polite = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_mpi_yield_when_idle=1", "MPIR_CVAR_POLLS_BEFORE_YIELD=1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE=1",
}

// died is why scenarios in which a rank dies cannot be run.
const died = "the launcher ends the whole job when one of its processes dies, as MPI has it"

func launcher(t *testing.T, name string, env ...string) cohorttest.Mpiexec {
	t.Helper()
	l := mpitest.Of(t, families[name])
	env = slices.Concat([]string{"COHORT_BACKEND=mpi"}, polite, l.Env(), env)
	return cohorttest.Mpiexec{
		Label: name, Command: append(l.Start(), ft...), Env: env,
		Sizes: []int{1, 2, 3, 4}, ShortFrom: 3,
		Skips: map[string]string{
			"faults/dead-*": died, "faults/failed-rank": died, "faults/abort": died, "recover/*": died,
			"bits":              "reductions have the library's order unless Config.Deterministic says otherwise, which TestBits has",
			"faults/left-early": "closing the world is MPI_Finalize, which waits for the other ranks",
		},
	}
}

// Of MPICH, where more ranks than processors take long, 3 ranks have Config.Check and 4 do not: with it
// a call is the library's too, after the ranks have agreed on it.
func TestConformanceMPICH(t *testing.T) {
	l := launcher(t, "mpich", "COHORT_CHECK=1")
	l.Sizes = sizes(1, 2, 3)
	cohorttest.Test(t, l)
}

func TestConformanceOpenMPI(t *testing.T) {
	l := launcher(t, "openmpi", "COHORT_CHECK=1")
	l.Sizes = sizes(l.Sizes...)
	cohorttest.Test(t, l)
}

// sizes returns numbers of ranks: with -short 2 alone. A rank has no -short.
func sizes(all ...int) []int {
	if testing.Short() {
		return []int{2}
	}
	return all
}

// TestBits has reductions with Config.Deterministic give what the local backend
// gives, bit for bit.
func TestBits(t *testing.T) {
	for _, name := range libraries {
		l := launcher(t, name)
		l.ShortFrom = 0 // the same work as on local
		for _, n := range sizes(2, 3, 4) {
			// Both are ranks of the same test: a process that is one ends in the first.
			got := cohorttest.Bits(t, l, n)
			if want := cohorttest.Bits(t, cohorttest.Goroutines{}, n); got != want {
				t.Errorf("%s, %d ranks: the digests are %s, on local %s", name, n, got, want)
			}
		}
	}
}

// unchecked is why scenarios that need the ranks' agreement cannot be run.
const unchecked = "without Config.Check a collective is the library's own, which does not compare calls"

func uncheckedLauncher(t *testing.T, name string) cohorttest.Mpiexec {
	l := launcher(t, name)
	l.Label += " unchecked"
	l.Sizes = []int{1, 2, 4}
	for _, s := range []string{"mismatch/*", "arguments/one-rank", "arguments/different"} {
		l.Skips[s] = unchecked
	}
	const alone = "without Config.Check a rank that comes too late does not hear that the others have given up"
	for _, s := range []string{"limits/collective", "limits/cancel", "faults/stopped", "faults/spinning"} {
		l.Skips[s] = alone
	}
	return l
}

func TestConformanceUncheckedMPICH(t *testing.T) {
	leftOut(t, "the suite without Config.Check")
	cohorttest.Test(t, uncheckedLauncher(t, "mpich"))
}

func TestConformanceUncheckedOpenMPI(t *testing.T) {
	leftOut(t, "the suite without Config.Check")
	cohorttest.Test(t, uncheckedLauncher(t, "openmpi"))
}
