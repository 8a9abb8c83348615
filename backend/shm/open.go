package shm

import (
	"cmp"
	"context"
	"errors"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// MaxRanks is the largest number of ranks of a job, which are on one node. The links of every two of them exist from the start.
const MaxRanks = 256

// Open is a backend.Opener.
func Open(ctx context.Context, cfg backend.Config) (backend.Comm, error) {
	switch {
	case !shmem.Supported:
		_, err := shmem.Create("", 0)
		return nil, &backend.Fault{Sentinel: backend.ErrNotSupported, Text: "backend shm: " + err.Error()}
	case cfg.Size < 1 || cfg.Size > MaxRanks:
		return nil, backend.Faultf(backend.ErrInit, "backend shm runs 1 to %d ranks on a node, not %d; backend tcp runs more", MaxRanks, cfg.Size)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Size:
		return nil, backend.Faultf(backend.ErrInit, "rank %d of a job of %d ranks", cfg.Rank, cfg.Size)
	case cfg.Job == "":
		return nil, backend.Faultf(backend.ErrInit, "backend shm needs a job name (COHORT_JOB), the same on all ranks")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(cfg.JoinTimeout, backend.JoinLimit))
	defer cancel()
	if cfg.Share != nil {
		own := meet.ThisNode()
		first, err := cfg.Share(ctx, own)
		if err == nil && first != own {
			err = errors.New("this process and rank 0 share no memory: they are on two nodes or in two containers, or of two users; use backend tcp")
		}
		if err != nil {
			return nil, backend.Faultf(backend.ErrInit, "rank %d of %d, backend shm: %v", cfg.Rank, cfg.Size, err)
		}
	}
	ranks := make([]int, cfg.Size)
	for r := range ranks {
		ranks[r] = r
	}
	n, err := node.Join(ctx, node.Config{Job: cfg.Job, Name: cfg.Job, Ranks: ranks, Rank: cfg.Rank, Check: cfg.Check})
	if err != nil {
		if _, ok := errors.AsType[*backend.Fault](err); ok {
			return nil, err
		}
		return nil, backend.Faultf(backend.ErrInit, "rank %d of %d, backend shm: %v", cfg.Rank, cfg.Size, err)
	}
	return start(n, cfg)
}
