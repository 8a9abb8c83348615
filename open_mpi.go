//go:build cgo && linux && !cohort_nompi

package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/mpi"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
)

func init() {
	register("mpi", known{priority: 50, open: func(ctx context.Context, s settings) (backend.Comm, error) {
		return mpi.Open(ctx, mpiConfig(ctx, s))
	}})
}

func mpiHandle(c backend.Comm) uintptr { return mpi.Handle(c) }

func mpiWindow(m backend.Memory) uintptr { return mpi.WindowHandle(m) }

func mpiMembers(world backend.Comm, h uintptr) ([]int, error) { return mpi.Members(world, h) }

func mpiConfig(ctx context.Context, s settings) mpi.Config {
	return mpi.Config{
		Library:       s.MPI.Lib,
		Check:         s.Check,
		Deterministic: s.Deterministic,
		Bounded:       s.Timeout > 0 || ctx.Done() != nil,
		Settings: mpiquirks.Settings{
			ThreadLevel: string(s.MPI.ThreadLevel), CUDA: string(s.MPI.CUDA), EagerLimit: s.MPI.EagerLimit, BufferSize: s.MPI.BufferSize,
			Tuning: s.MPI.Tuning, Profiling: s.MPI.Profiling,
		},
	}
}
