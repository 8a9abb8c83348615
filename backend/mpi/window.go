//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// shmDir is where the libraries create shared memory.
const shmDir = "/dev/shm"

// Share implements backend.Sharing by MPI_Win_allocate_shared. Rank 0's part is all of the memory,
// so that it is contiguous in every library. The ranks that touch its pages first decide where they
// are.
func (c *comm) Share(b *backend.Bound, size int, publish backend.Publish) (backend.Memory, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	// The library does not align its memory.
	var win libmpi.Win
	var mem []byte
	made, err := c.together(b, c.all(), c.transactions.window(), func() error {
		var code libmpi.Code
		if win, mem, code = c.data.ShareMemory(size + shmem.PageSize); code != 0 {
			return c.fault(code)
		}
		return nil
	}, func(bool, error) {}) // it cannot be freed
	if !made { // on no rank
		return nil, err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	all, err := publish(text)
	if err == nil {
		for r, t := range all {
			if t != "" {
				err = backend.Faultf(backend.ErrAlloc, "MPI_Win_allocate_shared on rank %d: %s", r, t)
				break
			}
		}
	}
	if err != nil {
		c.p.engine.leak() // a window that some ranks lack cannot be freed
		return nil, err
	}
	c.p.engine.wins.Add(1)
	return &memory{c: c, win: win, all: mem, mem: shmem.Aligned(mem)[:size:size]}, nil
}

// Available implements backend.Sharing. Open MPI refuses, on some ranks, to create files that nearly
// fill the file system.
func (c *comm) Available() (int64, string) {
	free, err := shmem.Space(shmDir)
	if err != nil {
		return -1, ""
	}
	return max(free-free/16-1<<20, 0), "the space in " + shmDir
}

// memory is a window of the library.
type memory struct {
	c        *comm
	win      libmpi.Win
	all, mem []byte
}

// Bytes implements backend.Memory.
func (m *memory) Bytes() []byte { return m.mem }

// Joint implements backend.Memory.
func (m *memory) Joint() bool { return true }

// Close implements backend.Memory.
func (m *memory) Close(b *backend.Bound) error {
	if m.mem == nil {
		return nil
	}
	m.mem = nil
	if !m.c.reenter() {
		m.Abandon()
		return nil
	}
	defer m.c.leave()
	refused := func(made bool, _ error) {
		if !made { // on no rank
			m.Abandon()
		}
	}
	made, err := m.c.together(b, m.c.all(), m.c.transactions.window(), m.free, refused)
	refused(made, err)
	return err
}

func (m *memory) free() error {
	code := m.win.Free()
	m.c.p.engine.wins.Add(-1)
	if code != 0 {
		return m.c.fault(code)
	}
	shmem.Guard(m.all)
	return nil
}

// Abandon implements backend.Memory.
func (m *memory) Abandon() {
	m.mem = nil
	m.c.p.engine.leak()
	if m.c.broken.Load() != nil { // the other ranks do not free it either
		m.c.p.engine.wins.Add(-1)
	}
}
