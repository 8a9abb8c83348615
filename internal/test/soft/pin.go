package soft

import (
	"hash/maphash"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel/span"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Pin implements accel.Device. It returns Go memory, which the race detector watches.
func (dev *Device) Pin(n int) ([]byte, error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(Pin, dev, n); err != nil {
		return nil, err
	}
	if n <= 0 {
		return nil, dev.fault(backend.ErrCount, "pinned memory of %d bytes; want 1 or more", n)
	}
	b := make([]byte, n)
	fill(b)
	d.pins.Add(span.Span[[]byte]{At: span.Address(b), N: uintptr(n), Value: b})
	d.stats.Pins++
	d.stats.Pinned += n
	return b, nil
}

// Unpin implements accel.Device. Memory with a pending copy stays pinned.
func (dev *Device) Unpin(b []byte) error {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.called(Unpin, dev, len(b))
	p, ok := d.pins.Find(span.Address(b))
	if !ok || p.At != span.Address(b) {
		return dev.fault(backend.ErrBuffer, "the memory was not returned by Pin, or is unpinned already")
	}
	for _, t := range d.touched {
		if view.Overlap(t.host, p.Value) {
			d.violation("memory was unpinned while a copy of it was pending")
			return dev.fault(backend.ErrBuffer, "a copy of the pinned memory is pending")
		}
	}
	d.pins.Remove(p.At)
	d.stats.Pins--
	d.stats.Pinned -= int(p.N)
	return failed
}

// isPinned reports whether the device can access b directly. d.mu is held.
func (d *Driver) isPinned(b []byte) bool { return d.pins.Holds(span.Address(b), uintptr(len(b))) }

// A transfer is a pending copy of host memory.
type transfer struct {
	host  []byte
	write bool // by the device

	// watched says that no other copy uses the memory, which must then not change: it must stay as
	// fill left it, or keep its checksum. If copies share memory, their order is that of the
	// streams.
	watched bool
	sum     uint64
}

var seed = maphash.MakeSeed()

// touch registers a transfer that is about to start. d.mu is held.
func (d *Driver) touch(host []byte, write bool) *transfer {
	t := &transfer{host: host, write: write, watched: true}
	for _, other := range d.touched {
		if (t.write || other.write) && view.Overlap(t.host, other.host) {
			t.watched, other.watched = false, false
		}
	}
	d.touched = append(d.touched, t)
	return t
}

// begin prepares the memory of a transfer so that changes are detected. d.mu is not held.
func (t *transfer) begin(watched bool) {
	switch {
	case !watched:
	case t.write:
		fill(t.host)
	default:
		t.sum = maphash.Bytes(seed, t.host)
	}
}

// intact reports whether the host has not changed the memory. d.mu is not held.
func (t *transfer) intact() bool {
	if t.write {
		return filled(t.host)
	}
	return maphash.Bytes(seed, t.host) == t.sum
}
