//go:build cgo && linux

package mpi_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// Of Open MPI few runs: its launcher takes more than a second for each.
func TestFaultsOpenMPI(t *testing.T) {
	cohorttest.Faults(t, launcher(t, "openmpi", "COHORT_CHECK=1"), 12)
}

func TestFaultsMPICH(t *testing.T) { cohorttest.Faults(t, launcher(t, "mpich", "COHORT_CHECK=1"), 100) }
