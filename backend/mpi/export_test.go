//go:build cgo && linux

package mpi

import "github.com/cohort-hpc/cohort/backend"

// Depart sends a rank the messages with which n ranks leave the job.
func Depart(c backend.Comm, to, n int) {
	p := c.(*comm).p
	for range n {
		p.engine.tell(p.world, nil, to, p.folds.failure())
	}
}
