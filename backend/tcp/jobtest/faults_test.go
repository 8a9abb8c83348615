//go:build linux || darwin

package jobtest

import (
	"strings"
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

// TestDeathIsLearnedBetweenLooks has survivors that never wait. Silence does not help them.
func TestDeathIsLearnedBetweenLooks(t *testing.T) {
	cohorttest.Some(t, launcher{env: []string{"COHORT_HEARTBEAT=off"}}, 2, func(name string) bool {
		return strings.HasPrefix(name, "faults/dead-between") || name == "faults/dead-target"
	})
}

// TestRankThatComputesIsNotLost has a rank give its goroutines no turn for five times the heartbeat limit. With -short
// it leaves memory to shm's test.
func TestRankThatComputesIsNotLost(t *testing.T) {
	rows := []string{"COHORT_TCP_SHM=0", "COHORT_TCP_SHM=1"}
	if testing.Short() {
		rows = rows[:1]
	}
	for _, shm := range rows {
		t.Run(shm, func(t *testing.T) {
			l := launcher{env: []string{shm, "COHORT_HEARTBEAT=200ms", "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=1"}}
			cohorttest.Some(t, l, 2, func(name string) bool { return name == "faults/computing" })
		})
	}
}
