//go:build linux

package jobtest

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/cohorttest"
)

// processes are the ranks of the suite. With -short they are up to three, and in one scenario four: ranks of the local
// backend are up to five.
type processes struct{ cohorttest.Processes }

func (processes) Ranks(bool) []int {
	if testing.Short() {
		return []int{1, 2, 3}
	}
	return nil
}

func (processes) Whole(n int) bool { return n < 7 }

func TestConformance(t *testing.T) {
	l := processes{cohorttest.Processes{Backend: "shm"}}
	cohorttest.Test(t, l)
	if testing.Short() {
		cohorttest.Some(t, l, 4, func(scenario string) bool { return scenario == "windows/one-copy" })
	}
}

// TestConformanceSchedules runs the schedules of package coll over messages, instead of the collectives
// over the segment, in the scenarios that have collectives. Nonblocking collectives are schedules in
// TestConformance too, and local runs more sizes.
func TestConformanceSchedules(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short: schedules over shm, as over tcp and local; make test-all runs them")
	}
	for _, n := range []int{3, 8} {
		t.Run(fmt.Sprintf("%dranks", n), func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Processes{Backend: "shm", Env: []string{"COHORT_COLLECTIVES=schedule"}}, n, cohorttest.HasCollectives)
		})
	}
}

// TestBitsEqualThoseOfLocal checks that the results have the same bits as those of ranks that are goroutines.
func TestBitsEqualThoseOfLocal(t *testing.T) {
	sizes := []int{2, 3, 5, 8}
	if testing.Short() {
		sizes = []int{5}
	}
	for _, n := range sizes {
		want := cohorttest.Bits(t, cohorttest.Goroutines{}, n)
		if got := cohorttest.Bits(t, cohorttest.Processes{Backend: "shm"}, n); got != want {
			t.Errorf("%d ranks: shm gives %s, local %s", n, got, want)
		}
	}
}
