package cohort

import (
	"context"
	"strconv"

	"github.com/cohort-hpc/cohort/backend"
)

// missing has the backends that this program does not have.
var missing = map[string]struct{}{"tcp": {}, "mpi": {}}

func openTCP(context.Context, settings) (backend.Comm, error) {
	return nil, absent("tcp", "this version of cohort does not have it yet")
}

func openMPI(context.Context, settings) (backend.Comm, error) {
	if l := detect(osEnv); l != nil {
		return nil, absent("mpi", "this process is one of "+l.what+", and this version of cohort does not have MPI yet; "+
			"start it with cohort run -n "+strconv.Itoa(l.size)+" on one node, or set COHORT_BACKEND=local and start it alone")
	}
	return nil, absent("mpi", "this version of cohort does not have it yet")
}
