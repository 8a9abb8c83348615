// Package far makes the ranks of one node look as if each were on a different node, so that tests run
// what ranks of several nodes do.
package far

import "github.com/cohort-hpc/cohort/backend"

// Comm is a communicator with each rank on a different node, as far as the layers above it know. It has none of
// the optional interfaces, so one-sided accesses to other ranks' parts are messages.
type Comm struct{ backend.Comm }

// NodeOf implements backend.Comm.
func (c Comm) NodeOf(rank int) int { return c.WorldRank(rank) }

// Derive implements backend.Comm.
func (c Comm) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := c.Comm.Derive(b, members, id)
	return Comm{d}, err
}

// Caps implements backend.Comm.
func (c Comm) Caps() backend.Caps {
	caps := c.Comm.Caps()
	caps.SharedMemory, caps.NativeColl = false, false
	return caps
}
