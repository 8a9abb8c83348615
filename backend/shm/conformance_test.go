//go:build linux

package shm_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Processes{Backend: "shm"}) }

// The schedules of package coll over messages, instead of the collectives over
// the segment.
func TestConformanceSchedules(t *testing.T) {
	cohorttest.Test(t, cohorttest.Processes{Backend: "shm", Env: []string{"COHORT_COLLECTIVES=schedule"}})
}

// TestBits checks that the results are those of ranks that are goroutines.
func TestBits(t *testing.T) {
	for _, n := range []int{2, 3, 5, 8} {
		want := cohorttest.Bits(t, cohorttest.Goroutines{}, n)
		if got := cohorttest.Bits(t, cohorttest.Processes{Backend: "shm"}, n); got != want {
			t.Errorf("%d ranks: shm gives %s, local %s", n, got, want)
		}
	}
}
