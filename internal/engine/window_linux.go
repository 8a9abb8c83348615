package engine

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Share implements backend.Sharing.
func (c *comm) Share(b *backend.Bound, size int, publish backend.Publish) (backend.Memory, error) {
	return shmem.Share(b, c, size, publish)
}

// Available implements backend.Sharing.
func (c *comm) Available() (int64, string) { return -1, "" }
