package tensor

import (
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/budget"
)

// pins are pieces of pinned memory of a device that operations take and give back. Pinning takes as long
// as copying many pieces.
//
// No operation waits for a piece, because those that hold pieces may be waiting for it. There are as many
// pieces as are used at the same time; most bytes of those not used stay pinned.
type pins struct {
	mu        sync.Mutex
	free      []*pin // the one used last comes last
	kept      int    // bytes of free
	most      int    // how much of it may stay pinned
	unchecked int    // bytes pinned since the budget was read
}

// What stays pinned is at most pinsKept bytes, and at most one part in pinsPart of what the job leaves this process.
const (
	pinsKept = 256 << 20
	pinsPart = 16
)

// pin is one piece.
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
	mem, err := d.newPin(max(n, minPin))
	if err != nil {
		d.trim(0) // what is kept for others may be what is missing
		if mem, err = d.newPin(max(n, minPin)); err != nil {
			return nil, nil, err
		}
	}
	return &pin{mem}, mem[:n], nil
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
			return nil, fault(cohort.ErrAlloc, "pin %d bytes of host memory: %d are left: %s", n, free, limit)
		}
		keep = min(keep, free/pinsPart)
	}
	d.pins.mu.Lock()
	d.pins.most, d.pins.unchecked = int(keep), 0
	d.pins.mu.Unlock()
	return d.acc.Pin(n)
}

// budgetStep is how many bytes are pinned before the budget is read again, which takes a third of a millisecond.
const budgetStep = 1 << 20

// minPin is the size of the smallest piece.
const minPin = 64 << 10

// unpin gives a piece back. No copy from or to it may be under way.
func (d *Device) unpin(p *pin) {
	d.pins.mu.Lock()
	d.pins.free = append(d.pins.free, p)
	d.pins.kept += len(p.b)
	most := d.pins.most
	d.pins.mu.Unlock()
	d.trim(most)
}

// trim unpins pieces that are not used until those left have at most most bytes.
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

// Trim frees what the device keeps for later operations: pinned memory, streams, and events.
func (d *Device) Trim() {
	if d != nil && d.acc != nil {
		d.trim(0)
		d.cache.trim()
	}
}
