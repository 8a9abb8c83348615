//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// Handle returns the MPI_Comm on which a communicator sends its user's messages; 0 if it is not of this
// backend.
func Handle(c backend.Comm) uintptr {
	if c, ok := c.(*comm); ok {
		return uintptr(c.data)
	}
	return 0
}

// WindowHandle returns the MPI_Win that provides some memory; 0 if there is none.
func WindowHandle(m backend.Memory) uintptr {
	if m, ok := m.(*memory); ok {
		return uintptr(m.win)
	}
	return 0
}

// Members returns the members of an MPI_Comm as ranks of world, which is a communicator of this backend, in
// their order there.
func Members(world backend.Comm, handle uintptr) ([]int, error) {
	c := world.(*comm)
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	ranks, code := libmpi.Comm(handle).WorldRanks(c.size)
	if code != 0 {
		return nil, c.fault(code)
	}
	return ranks, nil
}
