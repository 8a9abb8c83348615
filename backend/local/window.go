package local

import (
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

var _ backend.Sharing = (*Comm)(nil)

// areas has the memory that ranks are about to share, by a number that the rank that
// made it publishes.
var (
	areas    sync.Map // of *area
	areaLast atomic.Uint64
)

// area is memory of several ranks; the last one to close it frees it.
type area struct {
	*shmem.Area
	users atomic.Int32
}

// join counts one more user, unless the area has been closed.
func (a *area) join() bool {
	for {
		n := a.users.Load()
		if n == 0 {
			return false
		}
		if a.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave counts a user out.
func (a *area) leave() error {
	if a.users.Add(-1) > 0 {
		return nil
	}
	return a.Area.Close()
}

// Share implements backend.Sharing: rank 0 allocates the memory, and the others find it
// by its number.
func (c *Comm) Share(_ *backend.Bound, size int, publish backend.Publish) (backend.Memory, error) {
	var text string
	var mine *area
	var failed error
	if c.rank == 0 {
		a, err := shmem.Anonymous(size)
		if err == nil {
			mine = &area{Area: a}
			mine.users.Store(1)
			text = strconv.FormatUint(areaLast.Add(1), 10)
			areas.Store(text, mine)
			defer areas.Delete(text)
		}
		failed = err
	}
	all, err := publish(text)
	if err == nil {
		if a, ok := areas.Load(all[0]); ok && c.rank != 0 && a.(*area).join() {
			mine = a.(*area)
		}
		_, err = publish("") // rank 0 keeps the number until all have looked it up
	}
	switch {
	case err != nil:
		if mine != nil {
			_ = mine.leave()
		}
		return nil, err
	case failed != nil:
		return nil, failed
	case mine == nil:
		return nil, &backend.Fault{Sentinel: backend.ErrAlloc, Text: "rank 0 could not allocate the memory"}
	}
	return &memory{area: mine}, nil
}

// Available implements backend.Sharing.
func (c *Comm) Available() (int64, string) { return -1, "" }

// memory is a rank's view of an area.
type memory struct {
	area   *area
	closed atomic.Bool
}

// Bytes implements backend.Memory.
func (m *memory) Bytes() []byte { return m.area.Bytes() }

// Joint implements backend.Memory.
func (m *memory) Joint() bool { return false }

// Abandon implements backend.Memory.
func (m *memory) Abandon() { _ = m.Close() }

// Close implements backend.Memory.
func (m *memory) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	return m.area.leave()
}
