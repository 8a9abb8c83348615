//go:build cgo && linux

package mpi_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// Few runs: each is a start of the launcher, which ends the job when it loses a rank.
func TestFaultsOpenMPI(t *testing.T) {
	cohorttest.Faults(t, launcher(t, "openmpi", "COHORT_CHECK=1"), 8)
}

func TestFaultsMPICH(t *testing.T) { cohorttest.Faults(t, launcher(t, "mpich", "COHORT_CHECK=1"), 8) }
