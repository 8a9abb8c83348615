package tensor

import (
	"io"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/budget"
)

// How many unused streams and events are kept.
const (
	streamsKept = 16
	eventsKept  = 128
)

// freeList keeps unused streams or events of a device for reuse, because making one takes as long as copying a short tensor.
type freeList[T io.Closer] struct {
	create func() (T, error)
	most   int // how many are kept

	mu    sync.Mutex
	items []T
}

// take returns an unused item, or a new one.
func (s *freeList[T]) take() (T, error) {
	s.mu.Lock()
	if n := len(s.items); n > 0 {
		t := s.items[n-1]
		s.items = s.items[:n-1]
		s.mu.Unlock()
		return t, nil
	}
	s.mu.Unlock()
	return s.create()
}

// give puts back a stream without pending work, or an event that nothing waits for. It closes one that has failed, or
// that exceeds most.
func (s *freeList[T]) give(t T, sound bool) {
	s.mu.Lock()
	if sound = sound && len(s.items) < s.most; sound {
		s.items = append(s.items, t)
	}
	s.mu.Unlock()
	if !sound {
		_ = t.Close() // an item that cannot be closed is lost to the process, but the operation succeeds
	}
}

// trim closes all unused items.
func (s *freeList[T]) trim() {
	s.mu.Lock()
	items := s.items
	s.items = nil
	s.mu.Unlock()
	for _, t := range items {
		_ = t.Close()
	}
}

// pins keeps pinned memory of a device for reuse, because pinning takes as long as copying many
// pieces.
//
// No operation waits for a piece, because the holders of pieces may be waiting for that operation.
// The number of pieces grows to what is used at the same time; unused pieces of at most most bytes
// stay pinned.
type pins struct {
	mu        sync.Mutex
	free      [][]byte // the most recently used last
	kept      int      // bytes of free
	most      int      // how many bytes may stay pinned unused
	unchecked int      // bytes pinned since the budget was read
}

// At most pinsKept bytes stay pinned, and at most 1/pinsPart of the memory that the job's limits
// leave to this process.
const (
	pinsKept = 256 << 20
	pinsPart = 16
)

// pin returns the first n bytes of a piece of pinned memory. Its capacity is the piece.
func (d *Device) pin(n int) ([]byte, error) {
	d.pins.mu.Lock()
	for i := len(d.pins.free) - 1; i >= 0; i-- {
		if b := d.pins.free[i]; cap(b) >= n && cap(b) <= 2*n+minPin {
			d.pins.free = append(d.pins.free[:i], d.pins.free[i+1:]...)
			d.pins.kept -= cap(b)
			d.pins.mu.Unlock()
			return b[:n], nil
		}
	}
	d.pins.mu.Unlock()
	mem, err := d.newPin(max(n, minPin))
	if err != nil {
		d.trim(0) // the memory kept for reuse may be what is missing
		if mem, err = d.newPin(max(n, minPin)); err != nil {
			return nil, err
		}
	}
	return mem[:n], nil
}

// newPin pins new memory if the job's budget has room for it.
func (d *Device) newPin(n int) ([]byte, error) {
	d.pins.mu.Lock()
	d.pins.unchecked += n
	skip := d.pins.most > 0 && d.pins.unchecked < budgetStep
	d.pins.mu.Unlock()
	if skip {
		return d.acc.Pin(n)
	}
	keep := int64(pinsKept)
	if free, limit := budget.Free(); free >= 0 {
		if int64(n) > free {
			return nil, fault(cohort.ErrAlloc, "pin %d bytes of host memory: %d are left; %s", n, free, limit)
		}
		keep = min(keep, free/pinsPart)
	}
	d.pins.mu.Lock()
	d.pins.most, d.pins.unchecked = int(keep), 0
	d.pins.mu.Unlock()
	return d.acc.Pin(n)
}

// budgetStep is how many bytes are pinned between two readings of the budget, which are slow.
const budgetStep = 1 << 20

// minPin is the size of the smallest piece.
const minPin = 64 << 10

// unpin puts back what pin has returned. No copy to or from it may be pending.
func (d *Device) unpin(b []byte) {
	d.pins.mu.Lock()
	d.pins.free = append(d.pins.free, b)
	d.pins.kept += cap(b)
	most := d.pins.most
	d.pins.mu.Unlock()
	d.trim(most)
}

// trim unpins unused pieces until at most most bytes of them are left.
func (d *Device) trim(most int) {
	d.pins.mu.Lock()
	defer d.pins.mu.Unlock()
	for d.pins.kept > most && len(d.pins.free) > 0 {
		b := d.pins.free[0]
		d.pins.free = d.pins.free[1:]
		d.pins.kept -= cap(b)
		_ = d.acc.Unpin(b[:cap(b)]) // memory that cannot be unpinned is lost to the process, but this operation succeeds
	}
}

// Trim frees the pinned memory, streams and events that the device keeps for reuse.
//
// Not collective.
func (d *Device) Trim() {
	if d != nil && d.acc != nil {
		d.trim(0)
		d.streams.trim()
		d.events.trim()
	}
}
