//go:build linux

package jobtest

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) {
	cohorttest.Faults(t, cohorttest.Processes{Backend: "shm"}, 150)
}
