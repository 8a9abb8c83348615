//go:build cgo && linux

package jobtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/test/mpitest"
)

// families are the MPI libraries that the suite runs with.
var families = map[string]mpifind.Family{"mpich": mpifind.MPICH, "openmpi": mpifind.OpenMPI}

// polite makes libraries that wait by spinning yield: more ranks run than there are processors.
var polite = []string{
	"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_mpi_yield_when_idle=1", "MPIR_CVAR_POLLS_BEFORE_YIELD=1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE=1",
}

// died is why scenarios in which a rank dies are left out.
const died = "an MPI launcher ends the whole job when one of its processes dies"

func launcher(t *testing.T, name string, env ...string) cohorttest.Mpiexec {
	t.Helper()
	l := mpitest.Of(t, families[name])
	env = slices.Concat([]string{"COHORT_BACKEND=mpi"}, polite, l.Env(), env)
	m := cohorttest.Mpiexec{
		Label: name, Command: l.Start(), Env: env,
		Sizes: []int{1, 2, 3, 4}, ShortFrom: 3, Skips: make(map[string]string), LosesStatus: losesStatus(l.Start()[0]),
	}
	skip(t, m, died, "faults/dead-*", "faults/failed-rank", "faults/abort", "recover/*")
	if testing.Short() {
		skip(t, m, "left out with -short, because each is a job: TestFailedRankEndsOperations shows them in one", "failing/*")
	}
	skip(t, m, "reductions have the library's order unless Config.Deterministic is set, as in TestDeterministicReductionsHaveLocalBits", "bits")
	skip(t, m, "closing the world is MPI_Finalize, which waits for the other ranks", "faults/left-early")
	return m
}

// skip leaves scenarios out, for a reason to which it adds the library and its version.
func skip(t *testing.T, m cohorttest.Mpiexec, why string, scenarios ...string) {
	name, _, _ := strings.Cut(m.Label, " ")
	for _, s := range scenarios {
		m.Skips[s] = mpitest.Of(t, families[name]).Library.Title() + ": " + why
	}
}

// TestConformanceMPICH runs the suite under MPICH. More ranks than processors take long there, so 3
// ranks have Config.Check and 4 do not: with it the library still makes the calls once the ranks
// have agreed on them.
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

// sizes returns numbers of ranks, with -short only 2. Ranks themselves do not have -short.
func sizes(all ...int) []int {
	if testing.Short() {
		return []int{2}
	}
	return all
}

// TestCollectivesWithoutCheck runs the neighborhood collectives and exact sums without Config.Check, and forgets
// nonblocking collectives of the library.
func TestCollectivesWithoutCheck(t *testing.T) {
	for _, name := range inTurn(t) {
		for _, n := range sizes(2, 3, 4) {
			cohorttest.Some(t, uncheckedLauncher(t, name), n, func(scenario string) bool {
				return strings.HasPrefix(scenario, "neighbors/") || strings.HasPrefix(scenario, "Neighbor") || strings.HasPrefix(scenario, "exact/") || scenario == "requests/forgotten"
			})
		}
	}
}

// TestSomeRanksWorkInPlace has as many ranks as it takes until the libraries choose other algorithms in place.
func TestSomeRanksWorkInPlace(t *testing.T) {
	for i, name := range libraries {
		t.Run(name, func(t *testing.T) {
			cohorttest.Some(t, uncheckedLauncher(t, name), []int{3, 4}[i], func(scenario string) bool {
				return scenario == "collectives/mixed-in-place"
			})
		})
	}
}

// TestDeterministicReductionsHaveLocalBits checks that reductions with Config.Deterministic give
// the results of the local backend bit for bit.
func TestDeterministicReductionsHaveLocalBits(t *testing.T) {
	for _, name := range libraries {
		l := launcher(t, name)
		l.ShortFrom = 0 // the same work as on local
		for _, n := range sizes(2, 3, 4) {
			// The ranks of both run this test, and end in the first call.
			got := cohorttest.Bits(t, l, n)
			if want := cohorttest.Bits(t, cohorttest.Goroutines{}, n); got != want {
				t.Errorf("%s, %d ranks: the digests are %s, on local %s", name, n, got, want)
			}
		}
	}
}

// unchecked is why scenarios that need an agreement of the ranks are left out.
const unchecked = "without Config.Check the library makes the collectives, and it does not compare calls"

func uncheckedLauncher(t *testing.T, name string) cohorttest.Mpiexec {
	l := launcher(t, name)
	l.Label += " unchecked"
	l.Sizes = []int{1, 2, 4}
	skip(t, l, unchecked, "mismatch/*", "arguments/graph", "views/wrong")
	skip(t, l, "without Config.Check a rank that comes too late does not hear that the others have given up",
		"limits/collective", "limits/neighbors", "limits/one-rank", "limits/cancel", "faults/stopped")
	return l
}

func TestConformanceUncheckedMPICH(t *testing.T) {
	skipShort(t, "the suite without Config.Check")
	cohorttest.Test(t, uncheckedLauncher(t, "mpich"))
}

func TestConformanceUncheckedOpenMPI(t *testing.T) {
	skipShort(t, "the suite without Config.Check")
	cohorttest.Test(t, uncheckedLauncher(t, "openmpi"))
}
