//go:build linux || darwin

package tcp_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) { cohorttest.Faults(t, launcher{}, 150) }

// TestFaultsDemand is the same with connections that are made when they are first needed.
func TestFaultsDemand(t *testing.T) {
	cohorttest.Faults(t, launcher{env: []string{"COHORT_TCP_CONNECT=demand"}}, 40)
}
