//go:build linux || darwin

package jobtest

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) { cohorttest.Faults(t, launcher{}, 90) }

// TestFaultsSockets is the same without shared memory, as between nodes.
func TestFaultsSockets(t *testing.T) {
	cohorttest.Faults(t, launcher{env: []string{"COHORT_TCP_SHM=0"}}, 60)
}

// TestFaultsDemand is the same with connections that are made when they are first needed.
func TestFaultsDemand(t *testing.T) {
	cohorttest.Faults(t, launcher{env: []string{"COHORT_TCP_CONNECT=demand"}}, 40)
}
