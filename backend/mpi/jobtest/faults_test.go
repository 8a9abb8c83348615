//go:build cgo && linux

package jobtest

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// Shared memory files stay if a rank is lost before the library has removed them: those of Open
// MPI's windows, and all kinds of MPICH and UCX.

// TestFaultsOpenMPI has few runs: the launcher takes more than a second for each.
func TestFaultsOpenMPI(t *testing.T) {
	l := launcher(t, "openmpi", "COHORT_CHECK=1")
	l.Leaves = []string{"osc_sm.*"}
	cohorttest.Faults(t, l, 12)
}

func TestFaultsMPICH(t *testing.T) {
	skipShort(t, "random jobs with faults under MPICH; TestFaultsOpenMPI runs")
	l := launcher(t, "mpich", "COHORT_CHECK=1")
	l.Leaves = []string{"mpich_shar_tmp*", "mpich_shm_*", "ucx_shm_posix_*"}
	cohorttest.Faults(t, l, 100)
}
