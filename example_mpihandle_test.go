package cohort_test

import (
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort"
)

// Under an MPI launcher the handle goes to a C library, and one that the library makes comes back.
// examples/hdf5 is a whole program.
func ExampleComm_MPIHandle() {
	four(func(world *cohort.Comm) error {
		handle, err := world.MPIHandle()
		if errors.Is(err, cohort.ErrNotSupported) {
			if world.Rank() == 0 {
				fmt.Println("the ranks do not use MPI")
			}
			return nil
		}
		if err != nil {
			return err
		}
		c, err := cohort.FromMPIHandle(handle)
		if err != nil {
			return err
		}
		return c.Close()
	})
	// Output: the ranks do not use MPI
}
