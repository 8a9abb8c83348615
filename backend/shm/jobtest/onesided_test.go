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
	"github.com/cohort-hpc/cohort/internal/test/far"
)

// pairs is far.Comm with two ranks on a node, which share memory.
type pairs struct {
	far.Comm
	backend.Sharing
}

func (p pairs) NodeOf(rank int) int { return p.WorldRank(rank) / 2 }

func (p pairs) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	c, err := p.Comm.Comm.Derive(b, members, id)
	if err != nil {
		return nil, err
	}
	return pairs{far.Comm{Comm: c}, c.(backend.Sharing)}, nil
}

func init() {
	overShm := func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		return shm.Open(ctx, s)
	}
	cohort.Register("far-shm", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := overShm(ctx, s)
		return far.Comm{Comm: c}, err
	})
	cohort.Register("pairs-shm", func(ctx context.Context, s backend.Config) (backend.Comm, error) {
		c, err := overShm(ctx, s)
		if err != nil {
			return nil, err
		}
		return pairs{far.Comm{Comm: c}, c.(backend.Sharing)}, nil
	})
}

// TestSuitePassesOnSeveralNodes runs the conformance suite's one-sided windows, its regions and its files where some or all ranks are on other
// nodes. With -short it leaves ranks without a neighbor on their node to TestOnesidedOverSockets.
func TestSuitePassesOnSeveralNodes(t *testing.T) {
	cohorttest.Become()
	type row struct {
		backend string
		ranks   int
	}
	rows := []row{{"pairs-shm", 4}}
	if !testing.Short() {
		rows = append(rows, row{"far-shm", 2})
	}
	for _, c := range rows {
		t.Run(c.backend, func(t *testing.T) {
			cohorttest.Some(t, cohorttest.Processes{Backend: c.backend}, c.ranks, func(name string) bool {
				return strings.Contains(name, "onesided") || strings.HasPrefix(name, "files/") || name == "windows/region" || name == "faults/dead-target"
			})
		})
	}
}
