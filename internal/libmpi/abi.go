package libmpi

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

// ABI is one of the three binary interfaces of MPI libraries.
type ABI uint8

// The ABIs.
const (
	MPICH    ABI = iota + 1 // of MPICH, Intel MPI, Cray MPICH and MVAPICH
	OpenMPI                 // Open MPI's
	Standard                // of MPI-5.0
)

// String returns the name of the ABI.
func (a ABI) String() string {
	switch a {
	case MPICH:
		return "MPICH"
	case OpenMPI:
		return "Open MPI"
	case Standard:
		return "MPI standard ABI"
	}
	return fmt.Sprintf("ABI(%d)", uint8(a))
}

// errorClass is an error class of MPI that has a meaning to users of cohort.
type errorClass struct {
	name     string
	numbers  [Standard]int // in each ABI; 0: it has none
	sentinel error
}

// classOf returns the class with a number in an ABI, the zero class if it is not in the table.
func classOf(abi ABI, number int) errorClass {
	for _, c := range classes {
		if number != 0 && c.numbers[abi-1] == number {
			return c
		}
	}
	return errorClass{}
}

// Sentinel returns backend's error for an error class of an ABI, as MPI_Error_class gives it:
// nil for MPI_SUCCESS, backend.ErrInternal for an unknown class and for one without meaning to users
// of cohort.
func Sentinel(abi ABI, class int) error {
	if class == 0 {
		return nil
	}
	if s := classOf(abi, class).sentinel; s != nil {
		return s
	}
	return backend.ErrInternal
}

// ClassName returns the standard's name of an error class of an ABI, empty for one whose error is
// backend.ErrInternal.
func ClassName(abi ABI, class int) string { return classOf(abi, class).name }
