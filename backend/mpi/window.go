//go:build cgo && linux

package mpi

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// shmDir is where the libraries put memory that ranks share.
const shmDir = "/dev/shm"

// Share implements backend.Sharer by MPI_Win_allocate_shared. All of the memory is
// rank 0's part, so that it is in one piece whatever the library does between
// parts; where its pages are is decided by who touches them.
func (c *comm) Share(_ *backend.Bound, size int, tell backend.Publish) (backend.Memory, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	// The library's memory begins anywhere.
	win, mem, code := c.data.ShareMemory(size + shmem.PageSize)
	text := ""
	if code != 0 {
		text = c.fault(code).Error()
	}
	all, err := tell(text)
	if err == nil {
		for r, t := range all {
			if t != "" {
				err = &backend.Fault{Sentinel: backend.ErrAlloc, Text: fmt.Sprintf("MPI_Win_allocate_shared on rank %d: %s", r, t)}
				break
			}
		}
	}
	if err != nil {
		c.p.engine.leak() // a window that not all ranks have cannot be freed
		return nil, err
	}
	c.p.engine.wins.Add(1)
	return &memory{c: c, win: win, all: mem, mem: shmem.Aligned(mem)[:size:size]}, nil
}

// Available implements backend.Sharer. Open MPI refuses to make files that nearly fill
// the file system, and not on all ranks.
func (c *comm) Available() (int64, string) {
	free, err := shmem.Space(shmDir)
	if err != nil {
		return -1, ""
	}
	return max(free-free/16-1<<20, 0), "the space in " + shmDir
}

// memory is a window of the library's.
type memory struct {
	c        *comm
	win      libmpi.Win
	all, mem []byte
}

var _ backend.Collective = (*memory)(nil)

// Bytes implements backend.Memory.
func (m *memory) Bytes() []byte { return m.mem }

// Close implements backend.Memory.
func (m *memory) Close() error {
	if m.mem == nil {
		return nil
	}
	if !m.c.reenter() {
		m.Abandon()
		return nil
	}
	defer m.c.leave()
	m.mem = nil
	code := m.win.Free()
	m.c.p.engine.wins.Add(-1)
	if code != 0 {
		return m.c.fault(code)
	}
	shmem.Guard(m.all)
	return nil
}

// Abandon implements backend.Collective.
func (m *memory) Abandon() {
	m.mem = nil
	m.c.p.engine.leak()
	if m.c.broken.Load() != nil { // the others do not come for it either
		m.c.p.engine.wins.Add(-1)
	}
}
