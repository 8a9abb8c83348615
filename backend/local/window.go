package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

var _ backend.Sharing = (*Comm)(nil)

// Share implements backend.Sharing: rank 0 allocates the memory, and the others find it in the group.
func (c *Comm) Share(_ *backend.Bound, size int, publish backend.Publish) (backend.Memory, error) {
	area := &c.group.area
	return shmem.ShareBy(c.rank, publish, func() (*shmem.Area, string, error) {
		a, err := shmem.Anonymous(size)
		area.Store(a)
		return a, "made", err
	}, func(string) (*shmem.Area, error) { return area.Load().Retain() })
}

// Available implements backend.Sharing.
func (c *Comm) Available() (int64, string) { return -1, "" }
