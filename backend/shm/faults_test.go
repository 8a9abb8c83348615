//go:build linux

package shm_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) {
	cohorttest.Faults(t, cohorttest.Processes{Backend: "shm"}, 150)
}
