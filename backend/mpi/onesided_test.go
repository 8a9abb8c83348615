//go:build cgo && linux

package mpi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/far"
)

func init() {
	cohort.Register("far", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := mpi.Open(ctx, mpi.Config{Check: s.Check})
		return far.Comm{Comm: c}, err
	})
}

// TestOnesided runs the conformance suite's one-sided windows on ranks of one node, and by messages.
func TestOnesided(t *testing.T) {
	cohorttest.Become()
	for _, name := range libraries {
		for _, b := range []string{"mpi", "far"} {
			t.Run(name+"/"+b, func(t *testing.T) {
				l := launcher(t, name, "COHORT_BACKEND="+b, "COHORT_CHECK=1")
				cohorttest.Some(t, l, 2, func(s string) bool { return strings.Contains(s, "onesided") })
			})
		}
	}
}
