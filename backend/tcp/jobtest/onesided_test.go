//go:build linux || darwin

package jobtest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/test/far"
)

func init() {
	cohort.Register("far", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		where, launcher := strings.CutPrefix(os.Getenv("COHORT_TCP_COORDINATOR"), "launcher@")
		c, err := tcp.Open(ctx, tcp.Config{Config: s,
			Coordinator: where, Launcher: launcher, SecretFile: os.Getenv("COHORT_SECRET_FILE"), Sockets: true})
		return far.Comm{Comm: c}, err
	})
}

// TestOnesidedOverSockets runs the conformance suite's one-sided windows on ranks whose memory others reach by
// messages over sockets only. With -short it leaves out what updates do: TestSuitePassesOnSeveralNodes of shm has it.
func TestOnesidedOverSockets(t *testing.T) {
	cohorttest.Become()
	updates := []string{"onesided/put-get", "onesided/reductions", "onesided/operations", "onesided/compare-and-swap"}
	cohorttest.Some(t, launcher{env: []string{"COHORT_BACKEND=far"}}, 3, func(name string) bool {
		return strings.Contains(name, "onesided") && !(testing.Short() && slices.Contains(updates, name)) || name == "faults/dead-target"
	})
}
