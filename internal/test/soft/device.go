package soft

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/accel/span"
)

const (
	grain = 256  // size and alignment of allocations
	junk  = 0x7f // fills memory that was never written: large numbers of most types
)

// Device implements accel.Device.
type Device struct {
	driver   *Driver
	index    int
	standard *queue // the default stream's queue

	// Guarded by driver.mu.
	lost     error           // why the device cannot be used any more
	used     int             // bytes of its memory
	allot    span.Set[block] // allocations by address
	reserved [][]byte        // addresses that are not those of memory
}

// block is memory of the device, and the addresses at which the host sees it: its own if the host can read it.
type block struct{ memory, addresses []byte }

// Index implements accel.Device.
func (dev *Device) Index() int { return dev.index }

// Model implements accel.Device.
func (dev *Device) Model() string { return "a device in software" }

// Memory implements accel.Device.
func (dev *Device) Memory() (free, total int, err error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(Memory, dev, 0); err != nil {
		return 0, 0, err
	}
	return d.config.Memory - dev.used, d.config.Memory, nil
}

// Alloc implements accel.Device.
func (dev *Device) Alloc(n int) (accel.Address, error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(Alloc, dev, n); err != nil {
		return 0, err
	}
	if n <= 0 {
		return 0, dev.fault(backend.ErrCount, "allocation of %d bytes; want 1 or more", n)
	}
	free := d.config.Memory - dev.used
	if n > free || (n+grain-1)/grain*grain > free {
		return 0, dev.fault(backend.ErrAlloc, "out of memory: %d bytes requested, %d of %d free", n, free, d.config.Memory)
	}
	size := (n + grain - 1) / grain * grain
	b, err := dev.place(size)
	if err != nil {
		return 0, err
	}
	b.memory = b.memory[:n] // without the rest of the last grain
	fill(b.memory)
	at := span.Address(b.addresses)
	dev.allot.Add(span.Span[block]{At: at, N: uintptr(n), Value: b})
	dev.used += size
	d.stats.Allocations++
	d.stats.Allocated += size
	return accel.Address(at), nil
}

// place finds memory and its addresses. Addresses are used once.
func (dev *Device) place(size int) (b block, err error) {
	b.memory = make([]byte, size)
	if dev.driver.config.HostCanRead {
		b.addresses = b.memory
		return b, nil
	}
	if b.addresses, err = reserved(size); err != nil {
		return b, dev.fault(backend.ErrAlloc, "reserve the device's addresses: %v", err)
	}
	dev.reserved = append(dev.reserved, b.addresses)
	return b, nil
}

// Free implements accel.Device. It waits for all work of the device.
func (dev *Device) Free(a accel.Address) error {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	failed := d.called(Free, dev, 0)
	p, ok := dev.allot.Find(uintptr(a))
	if !ok || p.At != uintptr(a) {
		return dev.fault(backend.ErrBuffer, "%s was not returned by Alloc, or is freed already", hex(a))
	}
	dev.allot.Remove(p.At) // so that a second Free, and copies that start now, fail
	ends := make(map[*queue]int)
	for _, q := range d.queues {
		if q.device == dev {
			ends[q] = q.queued
		}
	}
	d.wait(func() bool {
		for q, n := range ends {
			if q.done < n {
				return false
			}
		}
		return true
	})
	size := (int(p.N) + grain - 1) / grain * grain
	dev.used -= size
	d.stats.Allocations--
	d.stats.Allocated -= size
	if failed == nil {
		failed = dev.lost // caused by the work it waited for
	}
	return failed
}

// release frees everything. driver.mu is held.
func (dev *Device) release() (err error) {
	for _, b := range dev.reserved {
		err = errors.Join(err, unmap(b))
	}
	dev.allot, dev.reserved = span.Set[block]{}, nil
	return err
}

// Room implements accel.Device.
func (dev *Device) Room(a accel.Address) (int, error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(Room, dev, 0); err != nil {
		return 0, err
	}
	p, ok := dev.allot.Find(uintptr(a))
	if !ok {
		return 0, dev.fault(backend.ErrBuffer, "%s is not memory of this device", hex(a))
	}
	return int(p.N - (uintptr(a) - p.At)), nil
}

// memory returns n bytes of device memory. driver.mu is held.
func (dev *Device) memory(a accel.Address, n int) ([]byte, error) {
	p, ok := dev.allot.Find(uintptr(a))
	if !ok {
		return nil, dev.fault(backend.ErrBuffer, "%s is not memory of this device", hex(a))
	}
	from := uintptr(a) - p.At
	if n < 0 || uintptr(n) > p.N-from {
		return nil, dev.fault(backend.ErrBuffer, "%d bytes at %s exceed its allocation, which ends after %d", n, hex(a), p.N-from)
	}
	return p.Value.memory[from : from+uintptr(n) : from+uintptr(n)], nil
}

// Run implements accel.Device.
func (dev *Device) Run(f func()) error { f(); return nil }

// View implements accel.Device. It returns nil for addresses outside the device's memory.
func (dev *Device) View(a accel.Address, n int) []byte {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := dev.memory(a, n); err != nil {
		return nil
	}
	p, _ := dev.allot.Find(uintptr(a))
	from := uintptr(a) - p.At
	return p.Value.addresses[from : from+uintptr(n) : from+uintptr(n)]
}

// Stream implements accel.Device.
func (dev *Device) Stream() (accel.Stream, error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(NewStream, dev, 0); err != nil {
		return nil, err
	}
	q := d.newQueue(dev)
	d.stats.Streams++
	return &Stream{dev: dev, q: q}, nil
}

// Adopt implements accel.Device. It knows the handles of Stream.
func (dev *Device) Adopt(handle uintptr) accel.Stream {
	const legacy = 1 // CUDA's other handle of the default stream
	if handle == 0 || handle == legacy {
		return &Stream{dev: dev, q: dev.standard, adopted: true, handle: handle}
	}
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	var q *queue // nil if no stream of the device has the handle
	if i := slices.IndexFunc(d.queues, func(q *queue) bool { return q.device == dev && q.handle == handle }); i >= 0 {
		q = d.queues[i]
	}
	return &Stream{dev: dev, q: q, adopted: true, handle: handle}
}

// Event implements accel.Device.
func (dev *Device) Event() (accel.Event, error) {
	d := dev.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.called(NewEvent, dev, 0); err != nil {
		return nil, err
	}
	d.stats.Events++
	return &Event{dev: dev, last: &moment{come: true}}, nil
}

// lose breaks the device. driver.mu is held.
func (dev *Device) lose(err error) {
	if dev.lost == nil {
		dev.lost = err
	}
	dev.driver.changed.Broadcast()
}

func (dev *Device) fault(sentinel error, format string, args ...any) error {
	return dev.driver.fault(sentinel, "device %d: %s", dev.index, fmt.Sprintf(format, args...))
}

func hex(a accel.Address) string { return fmt.Sprintf("address %#x", uintptr(a)) }

var junkBlock = bytes.Repeat([]byte{junk}, 4096)

func fill(b []byte) {
	for len(b) > 0 {
		b = b[copy(b, junkBlock):]
	}
}

// filled reports whether b is unchanged since fill.
func filled(b []byte) bool {
	for ; len(b) > len(junkBlock); b = b[len(junkBlock):] {
		if !bytes.Equal(b[:len(junkBlock)], junkBlock) {
			return false
		}
	}
	return bytes.Equal(b, junkBlock[:len(b)])
}
