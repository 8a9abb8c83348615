//go:build !cgo || !linux || cohort_nompi

package cohort

import (
	"context"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/mpifind"
)

func init() {
	register("mpi", known{priority: 50, open: openMPI,
		missing: "this program was built without it (not on Linux, with CGO_ENABLED=0, or with the tag cohort_nompi)"})
}

func mpiHandle(backend.Comm) uintptr { return 0 }

func mpiWindow(backend.Memory) uintptr { return 0 }

func mpiMembers(backend.Comm, uintptr) ([]int, error) { panic("there is no MPI_Comm") } // mpiHandle says so

func openMPI(context.Context, settings) (backend.Comm, error) {
	if l := mpifind.Launched(osEnv); l != nil && l.Size > 1 {
		return nil, absent("mpi", ", but this process is one of "+strconv.Itoa(l.Size)+" started by "+l.Name+" ("+l.Evidence+"); "+
			"build the program with cgo, or start it with cohort run -n "+strconv.Itoa(l.Size)+" on one node")
	}
	return nil, absent("mpi")
}
