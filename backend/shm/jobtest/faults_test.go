//go:build linux

package jobtest

import (
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestFaults(t *testing.T) {
	cohorttest.Faults(t, cohorttest.Processes{Backend: "shm"}, 150)
}

// TestDeathIsLearnedBetweenLooks has survivors that never wait. Silence does not help them.
func TestDeathIsLearnedBetweenLooks(t *testing.T) {
	cohorttest.Some(t, cohorttest.Processes{Backend: "shm", Env: []string{"COHORT_HEARTBEAT=off"}}, 2, func(name string) bool {
		return strings.HasPrefix(name, "faults/dead-between") || name == "faults/dead-target"
	})
}

// TestRankThatComputesIsNotLost has a rank give its goroutines no turn for five times the heartbeat limit.
func TestRankThatComputesIsNotLost(t *testing.T) {
	l := cohorttest.Processes{Backend: "shm", Env: []string{"COHORT_HEARTBEAT=200ms", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1"}}
	cohorttest.Some(t, l, 2, func(name string) bool { return name == "faults/computing" })
}
