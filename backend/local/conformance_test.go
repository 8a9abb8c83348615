package local_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Goroutines{}) }

// The schedules of package coll and their runner, instead of the collectives
// that read the peers' buffers.
func TestConformanceSchedules(t *testing.T) {
	t.Setenv("COHORT_COLLECTIVES", "schedule")
	cohorttest.Test(t, cohorttest.Goroutines{})
}

// TestBits checks that both ways give the same bits.
func TestBits(t *testing.T) {
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
