package libmpi

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// TestClassesHaveSentinels checks error classes whose numbers differ between the ABIs, as in the
// headers of MPICH 4, Open MPI 4 and MPI-5.0. Their errors are those of docs/errors.md.
func TestClassesHaveSentinels(t *testing.T) {
	for _, test := range []struct {
		name                     string
		mpich, openMPI, standard int
		want                     error
	}{
		{"", 0, 0, 0, nil},
		{"MPI_ERR_BUFFER", 1, 1, 1, backend.ErrBuffer},
		{"MPI_ERR_COMM", 5, 5, 5, backend.ErrComm},
		{"MPI_ERR_REQUEST", 19, 7, 7, backend.ErrRequest},
		{"MPI_ERR_ROOT", 7, 8, 8, backend.ErrRoot},
		{"MPI_ERR_OP", 9, 10, 10, backend.ErrOp},
		{"MPI_ERR_TRUNCATE", 14, 15, 15, backend.ErrTruncate},
		{"", 13, 14, 14, backend.ErrInternal}, // MPI_ERR_UNKNOWN
		{"MPI_ERR_NO_MEM", 34, 39, 39, backend.ErrAlloc},
		{"MPI_ERR_WIN", 45, 53, 56, backend.ErrWin},
		{"MPI_ERR_UNSUPPORTED_OPERATION", 44, 52, 55, backend.ErrNotSupported},
		{"MPI_ERR_PROC_ABORTED", 76, 74, 58, backend.ErrPeerLost},
		{"MPIX_ERR_REVOKED", 103, 77, -1, backend.ErrBroken},
	} {
		for abi, class := range map[ABI]int{MPICH: test.mpich, OpenMPI: test.openMPI, Standard: test.standard} {
			if class < 0 {
				continue
			}
			if got := Sentinel(abi, class); got != test.want {
				t.Errorf("class %d of %v is %v, want %v", class, abi, got, test.want)
			}
			if got := ClassName(abi, class); got != test.name {
				t.Errorf("class %d of %v is %s, want %s", class, abi, got, test.name)
			}
		}
	}
	if got := Sentinel(Standard, 4000); got != backend.ErrInternal {
		t.Errorf("an unknown class is %v", got)
	}
	if got := ABI(9).String() + ", " + OpenMPI.String(); got != "ABI(9), Open MPI" {
		t.Errorf("ABIs are called %s", got)
	}
}
