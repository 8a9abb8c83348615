//go:build cgo && linux

package mpi

import "github.com/cohort-hpc/cohort/backend"

// MPI does not continue after a loss: the launcher ends the job. So of backend.Recovery there is only Declare.

func (c *comm) unrecoverable() error {
	return backend.Faultf(backend.ErrNotSupported, "%s cannot continue after a loss; backends local, shm and tcp can", c.p.lib.Name())
}

// Lost implements backend.Recovery.
func (c *comm) Lost() []int { return nil }

// Revoke implements backend.Recovery.
func (c *comm) Revoke(error) error { return c.unrecoverable() }

// Agree implements backend.Recovery.
func (c *comm) Agree(*backend.Bound, int) (int, error) { return 0, c.unrecoverable() }

// Shrink implements backend.Recovery.
func (c *comm) Shrink(*backend.Bound, backend.Claimer) (backend.Comm, uint32, error) {
	return nil, 0, c.unrecoverable()
}
