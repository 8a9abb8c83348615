//go:build cgo

package libmpi

import (
	"fmt"
	"runtime"
)

// Describe loads a library, initializes it for a job of this process alone, and reports what it can
// do. A process calls it once, and does nothing else with MPI.
func Describe(path string) (Description, error) {
	l, err := Open(path)
	if err != nil {
		return Description{}, err
	}
	d := Description{Version: l.Version, Library: l.Name(), ABI: l.ABI.String(), CUDA: "unknown",
		LargeCounts: Has("MPI_Send_c")}
	switch {
	case Has("MPI_Allreduce_init"):
		d.Persistent = "MPI_"
	case Has("MPIX_Allreduce_init"):
		d.Persistent = "MPIX_"
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	level, restored, code := Init(Multiple)
	if code != 0 {
		return d, fmt.Errorf("MPI_Init_thread: %w", Error(code))
	}
	d.ThreadLevel, d.Restored = level.String(), restored
	switch CUDA() {
	case 0:
		d.CUDA = "no"
	case 1:
		d.CUDA = "yes"
	}
	if code := Finalize(); code != 0 {
		return d, fmt.Errorf("MPI_Finalize: %w", Error(code))
	}
	return d, nil
}
