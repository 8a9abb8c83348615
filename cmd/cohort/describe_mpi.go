//go:build cgo && linux && !cohort_nompi

package main

import (
	"fmt"
	"runtime"

	"github.com/cohort-hpc/cohort/internal/libmpi"
)

const mpiBuilt = true

// describe loads a library into this process, initializes it for a job of this process alone, and returns what it supports.
// A process calls it once, and does nothing else with MPI.
func describe(path string) (r report, err error) {
	l, err := libmpi.Open(path)
	if err != nil {
		return r, err
	}
	r = report{Standard: l.Version, Says: l.Name(), CUDA: "unknown", LargeCounts: libmpi.Has("MPI_Send_c")}
	for _, prefix := range []string{"MPIX_", "MPI_"} {
		if libmpi.Has(prefix + "Allreduce_init") {
			r.Persistent = prefix
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	level, code := libmpi.Init(libmpi.Multiple)
	if code != 0 {
		return r, fmt.Errorf("MPI_Init_thread: %w", libmpi.Error(code))
	}
	r.ThreadLevel = level.String()
	switch libmpi.CUDA() {
	case 0:
		r.CUDA = "no"
	case 1:
		r.CUDA = "yes"
	}
	if code := libmpi.Finalize(); code != 0 {
		return r, fmt.Errorf("MPI_Finalize: %w", libmpi.Error(code))
	}
	return r, nil
}
