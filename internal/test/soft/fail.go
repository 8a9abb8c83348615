package soft

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

// Op is a kind of call, or of work.
type Op string

// The calls that can be made to fail. Copy is the start of a copy. Run is a copy or kernel while a
// stream does it: the caller that waits for it gets the error, and the device is broken afterwards.
const (
	Devices     Op = "Devices"
	Memory      Op = "Memory"
	Alloc       Op = "Alloc"
	Free        Op = "Free"
	Room        Op = "Room"
	Pin         Op = "Pin"
	Unpin       Op = "Unpin"
	NewStream   Op = "Stream"
	NewEvent    Op = "Event"
	Copy        Op = "Copy"
	Record      Op = "Record"
	Follow      Op = "Follow"
	Sync        Op = "Stream.Sync"
	EventSync   Op = "Event.Sync"
	Done        Op = "Event.Done"
	CloseStream Op = "Stream.Close"
	CloseEvent  Op = "Event.Close"
	Run         Op = "Run"
	Kernel      Op = "Do"
)

// Call is a call of a kind, numbered from 1 over all devices.
type Call struct {
	Op     Op
	Nth    int
	Device int // -1 for a call of the driver
	Bytes  int
}

// Nth returns a function for SetFail that lets call k of a kind fail. If err is nil it uses the
// error that a driver would return: out of memory, or an unknown error.
func Nth(op Op, k int, err error) func(Call) error {
	return func(c Call) error {
		if c.Op != op || c.Nth != k {
			return nil
		}
		if err != nil {
			return err
		}
		if op == Alloc || op == Pin {
			return &backend.Fault{Sentinel: backend.ErrAlloc, Text: fmt.Sprintf("soft: %s of %d bytes: out of memory", op, c.Bytes)}
		}
		return &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf("soft: %s: unknown error (999)", op)}
	}
}

// SetFail makes every call fail with the error that f returns for it; nil lets nothing fail. It restarts the numbering
// of calls. f is called with a lock held and must not call the driver.
func (d *Driver) SetFail(f func(Call) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
	clear(d.calls)
}

// called counts a call and returns the error it must fail with. d.mu is held.
func (d *Driver) called(op Op, dev *Device, bytes int) error {
	d.calls[op]++
	c := Call{Op: op, Nth: d.calls[op], Device: -1, Bytes: bytes}
	if dev != nil {
		c.Device = dev.index
	}
	if d.fail != nil {
		if err := d.fail(c); err != nil {
			return err
		}
	}
	if dev != nil {
		return dev.lost
	}
	return nil
}
