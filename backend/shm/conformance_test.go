//go:build linux

package shm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Processes{Backend: "shm"}) }

// The schedules of package coll over messages, instead of the collectives over the segment, in what has
// collectives. Those that do not block are schedules in TestConformance too, and local has more sizes.
func TestConformanceSchedules(t *testing.T) {
	for _, n := range []int{3, 8} {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Processes{Backend: "shm", Env: []string{"COHORT_COLLECTIVES=schedule"}}, n, func(s string) bool {
				family, _, _ := strings.Cut(s, "/")
				return !slices.Contains([]string{"p2p", "probe", "requests"}, family) && !strings.Contains(s, "windows")
			})
		})
	}
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
