//go:build linux || darwin

package jobtest

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/tcp"
	"github.com/cohort-hpc/cohort/cohorttest"
)

// far is a communicator whose ranks are on a node each, as far as the layers above it know.
type far struct{ backend.Comm }

func (f far) NodeOf(rank int) int { return f.WorldRank(rank) }

func (f far) Derive(members []int, id uint32) (backend.Comm, error) {
	c, err := f.Comm.Derive(members, id)
	return far{c}, err
}

func (f far) Caps() backend.Caps {
	c := f.Comm.Caps()
	c.SharedMemory = false
	return c
}

func init() {
	cohort.Register("far", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		where, launcher := strings.CutPrefix(os.Getenv("COHORT_TCP_COORDINATOR"), "launcher@")
		c, err := tcp.Open(ctx, tcp.Config{Rank: s.Rank, Size: s.Size, Job: s.Job, Heartbeat: s.Heartbeat,
			Coordinator: where, Launcher: launcher, SecretFile: os.Getenv("COHORT_SECRET_FILE"), Sockets: true})
		return far{c}, err
	})
}

// TestOnesidedOverSockets runs the conformance suite's one-sided windows on ranks whose memory others reach by
// messages over sockets only.
func TestOnesidedOverSockets(t *testing.T) {
	cohorttest.Become()
	cohorttest.Some(t, launcher{env: []string{"COHORT_BACKEND=far"}}, 3, func(name string) bool {
		return strings.Contains(name, "onesided") || name == "faults/dead-target"
	})
}
