package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/window"
)

var _ backend.Sharing = (*Comm)(nil)

// Share implements backend.Sharing: rank 0 allocates the memory, and the others find it in the group.
func (c *Comm) Share(_ *backend.Bound, size int, publish backend.Publish) (backend.Memory, error) {
	memory := &c.group.memory
	return window.ShareBy(c.rank, publish, func() (*window.Memory, string, error) {
		m, err := window.Anonymous(size)
		memory.Store(m)
		return m, "made", err
	}, func(string) (*window.Memory, error) { return memory.Load().Retain() })
}

// Available implements backend.Sharing.
func (c *Comm) Available() (int64, string) { return -1, "" }
