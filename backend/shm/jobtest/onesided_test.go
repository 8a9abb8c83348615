//go:build linux

package jobtest

import (
	"context"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/shm"
	"github.com/cohort-hpc/cohort/cohorttest"
)

// far is a communicator whose ranks are on a node each, as far as the layers above it know. It has none of the
// optional interfaces, so one-sided accesses of other ranks' parts are messages.
type far struct{ backend.Comm }

func (f far) NodeOf(rank int) int { return f.WorldRank(rank) }

func (f far) Derive(members []int, id uint32) (backend.Comm, error) {
	c, err := f.Comm.Derive(members, id)
	return far{c}, err
}

func (f far) Caps() backend.Caps {
	c := f.Comm.Caps()
	c.SharedMemory, c.NativeColl = false, false
	return c
}

// pairs is far with two ranks on a node, which share memory.
type pairs struct {
	far
	backend.Sharing
}

func (p pairs) NodeOf(rank int) int { return p.WorldRank(rank) / 2 }

func (p pairs) Derive(members []int, id uint32) (backend.Comm, error) {
	c, err := p.Comm.Derive(members, id)
	if err != nil {
		return nil, err
	}
	return pairs{far{c}, c.(backend.Sharing)}, nil
}

func init() {
	overShm := func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		return shm.Open(ctx, shm.Config{Rank: s.Rank, Size: s.Size, Job: s.Job, Heartbeat: s.Heartbeat})
	}
	cohort.Register("far-shm", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := overShm(ctx, s)
		return far{c}, err
	})
	cohort.Register("pairs-shm", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := overShm(ctx, s)
		if err != nil {
			return nil, err
		}
		return pairs{far{c}, c.(backend.Sharing)}, nil
	})
}

// TestOnesidedByMessages runs the conformance suite's one-sided windows where some or all parts are on other
// nodes.
func TestOnesidedByMessages(t *testing.T) {
	cohorttest.Become()
	for _, c := range []struct {
		backend string
		ranks   int
	}{{"far-shm", 2}, {"pairs-shm", 4}} {
		t.Run(c.backend, func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Processes{Backend: c.backend}, c.ranks, func(name string) bool {
				return strings.Contains(name, "onesided") || name == "faults/dead-target"
			})
		})
	}
}
