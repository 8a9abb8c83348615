package jobtest

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Goroutines{}) }

// TestConformanceSchedules runs the scenarios with collectives again, with the schedules of
// package coll instead of the collectives that read the other ranks' buffers. Nonblocking and
// persistent collectives are schedules in TestConformance too.
func TestConformanceSchedules(t *testing.T) {
	t.Setenv("COHORT_COLLECTIVES", "schedule")
	sizes := []int{2, 3, 5, 8}
	if testing.Short() {
		sizes = []int{3} // TestConformance has schedules with 5
	}
	for _, n := range sizes {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Goroutines{}, n, cohorttest.HasCollectives)
		})
	}
}

// TestResultsHaveLocalBits checks that direct collectives and schedules give the same bits.
func TestResultsHaveLocalBits(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7, 8} {
		direct := cohorttest.Bits(t, cohorttest.Goroutines{}, n)
		t.Run("schedules", func(t *testing.T) {
			t.Setenv("COHORT_COLLECTIVES", "schedule")
			if got := cohorttest.Bits(t, cohorttest.Goroutines{}, n); got != direct {
				t.Errorf("%d ranks: schedules give %s, direct collectives %s", n, got, direct)
			}
		})
	}
}
