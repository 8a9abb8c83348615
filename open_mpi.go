//go:build cgo && linux && !cohort_nompi

package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
)

func openMPI(ctx context.Context, s settings) (backend.Comm, error) {
	return mpi.Open(ctx, mpiConfig(ctx, s))
}

func mpiConfig(ctx context.Context, s settings) mpi.Config {
	return mpi.Config{
		Library:       s.MPILib,
		Check:         s.Check,
		Deterministic: s.Deterministic,
		Bounded:       s.Timeout > 0 || ctx.Done() != nil,
		Settings: mpi.Settings{
			ThreadLevel: s.ThreadLevel, CUDA: s.CUDA, EagerLimit: s.EagerLimit, BufferSize: s.BufferSize,
			Tuning: s.Tuning, Profiling: s.Profiling,
		},
	}
}
