package local_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

func TestConformance(t *testing.T) { cohorttest.Test(t, cohorttest.Goroutines{}) }

// The schedules of package coll and their runner, instead of the collectives that read the peers' buffers, in
// what has collectives. Those that do not block are schedules in TestConformance too.
func TestConformanceSchedules(t *testing.T) {
	t.Setenv("COHORT_COLLECTIVES", "schedule")
	for _, n := range []int{2, 3, 5, 8} {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Goroutines{}, n, func(s string) bool {
				family, _, _ := strings.Cut(s, "/")
				return !slices.Contains([]string{"p2p", "probe", "requests"}, family) && !strings.Contains(s, "windows")
			})
		})
	}
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
