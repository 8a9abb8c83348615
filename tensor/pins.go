package tensor

import "sync"

// pins are pieces of pinned memory of a device that operations take and give back. To pin takes long:
// as much as the copy of many pieces.
//
// Nobody waits for a piece: operations that have some may be waiting for those that want some. There
// are as many as are used at the same time, and of those not used pinsKept bytes stay.
type pins struct {
	mu   sync.Mutex
	free []*pin // in use before, the last one used last
	kept int    // bytes of free
}

// pinsKept is how many bytes that are not in use stay pinned.
const pinsKept = 256 << 20

// pin is a piece of pinned memory.
type pin struct {
	b []byte
}

// pin returns pinned memory of n bytes or more, of which b has n.
func (d *Device) pin(n int) (p *pin, b []byte, err error) {
	d.pins.mu.Lock()
	for i := len(d.pins.free) - 1; i >= 0; i-- {
		if p = d.pins.free[i]; len(p.b) >= n && len(p.b) <= 2*n+minPin {
			d.pins.free = append(d.pins.free[:i], d.pins.free[i+1:]...)
			d.pins.kept -= len(p.b)
			d.pins.mu.Unlock()
			return p, p.b[:n], nil
		}
	}
	d.pins.mu.Unlock()
	mem, err := d.acc.Pin(max(n, minPin))
	if err != nil {
		d.trim(0) // what is kept for others may be what is missing
		if mem, err = d.acc.Pin(max(n, minPin)); err != nil {
			return nil, nil, err
		}
	}
	return &pin{mem}, mem[:n], nil
}

// minPin is the least that is pinned at a time.
const minPin = 64 << 10

// unpin gives a piece back, with which no copy is under way.
func (d *Device) unpin(p *pin) {
	d.pins.mu.Lock()
	d.pins.free = append(d.pins.free, p)
	d.pins.kept += len(p.b)
	d.pins.mu.Unlock()
	d.trim(pinsKept)
}

// trim gives up pieces that are not used until those kept have at most a number of bytes.
func (d *Device) trim(most int) {
	d.pins.mu.Lock()
	defer d.pins.mu.Unlock()
	for d.pins.kept > most && len(d.pins.free) > 0 {
		p := d.pins.free[0]
		d.pins.free = d.pins.free[1:]
		d.pins.kept -= len(p.b)
		_ = d.acc.Unpin(p.b) // a piece that cannot be given back is lost to the process, not to this operation
	}
}

// Trim gives back what is kept for later operations: pinned memory, streams, and events.
func (d *Device) Trim() {
	if d != nil && d.acc != nil {
		d.trim(0)
		d.cache.trim()
	}
}
