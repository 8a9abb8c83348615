package window

import (
	"cmp"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Memory is what users of one process, or several processes, have in common. It is a backend.Memory.
type Memory struct {
	mu    sync.Mutex // guards the fields below
	mem   []byte
	users int // that close it
}

// Anonymous makes memory for this process alone.
func Anonymous(size int) (*Memory, error) {
	return memory(shmem.Anonymous(size))
}

func memory(mem []byte, err error) (*Memory, error) {
	if err != nil {
		return nil, err
	}
	return &Memory{mem: mem, users: 1}, nil
}

// Bytes returns the memory, which begins on a page; nil after the last Close.
func (m *Memory) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mem
}

// Retain returns the memory for one more user, who closes it too.
func (m *Memory) Retain() (*Memory, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mem == nil {
		return nil, &backend.Fault{Sentinel: backend.ErrClosed, Text: "the memory is closed"}
	}
	m.users++
	return m, nil
}

// Close gives the memory back when every user has called it. On Linux a slice of it that the program has kept leads to a
// fault then (shmem.Unmap).
func (m *Memory) Close(*backend.Bound) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users--; m.mem == nil || m.users > 0 {
		return nil
	}
	mem := m.mem
	m.mem = nil
	return shmem.Unmap(mem)
}

// Joint implements backend.Memory: every rank closes its own.
func (m *Memory) Joint() bool { return false }

// Abandon implements backend.Memory.
func (m *Memory) Abandon() { _ = m.Close(nil) }

// ShareBy gives ranks memory in common, as backend.Sharing describes. Rank 0 makes it and publishes
// its name, by which the others open it. The name need not be good any more when ShareBy returns.
func ShareBy(rank int, publish backend.Publish, make func() (m *Memory, name string, err error), open func(name string) (*Memory, error)) (backend.Memory, error) {
	var m *Memory
	var name string
	var failed error
	if rank == 0 {
		if m, name, failed = make(); failed != nil {
			name = ""
		}
	}
	all, err := publish(name)
	if err == nil {
		if rank > 0 && all[0] == "" {
			failed = backend.Faultf(backend.ErrAlloc, "rank 0 could not allocate the memory")
		} else if rank > 0 {
			m, failed = open(all[0])
		}
		_, err = publish("")
	}
	if err = cmp.Or(err, failed); err != nil {
		if m != nil {
			m.Abandon()
		}
		return nil, err
	}
	return m, nil
}
