//go:build !cohort_noshm

package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/shm"
)

func init() {
	register("shm", known{priority: 40, open: func(ctx context.Context, s settings) (backend.Comm, error) {
		return shm.Open(ctx, shmConfig(s))
	}})
}

func shmConfig(s settings) shm.Config {
	return shm.Config{Rank: s.Rank, Size: s.Size, Job: s.Job, Heartbeat: s.Heartbeat, JoinTimeout: s.JoinTimeout, Check: s.Check}
}
