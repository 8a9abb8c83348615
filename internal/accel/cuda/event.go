package cuda

import (
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// object is a stream or an event of the driver.
type object struct {
	dev    *device
	handle uintptr
	kind   string

	mu     sync.RWMutex // read-locked during calls, so that the driver never gets a closed handle
	closed bool
}

// create makes an object with a function of the driver.
func (dev *device) create(fn function, flags uintptr) (handle uintptr, err error) {
	f, err := dev.enter()
	if err != nil {
		return 0, err
	}
	defer dev.leave(f)
	if r := f.call(fn, uintptr(unsafe.Pointer(&f.out[0])), flags); r != success {
		return 0, dev.failed(r, fn, "")
	}
	return f.out[0], nil
}

// hold read-locks an open object; the caller unlocks mu.
func (o *object) hold() error {
	o.mu.RLock()
	if o.closed {
		o.mu.RUnlock()
		return o.dev.fault(backend.ErrClosed, "%s", o.kind)
	}
	return nil
}

// do calls a function with the device's context, if the object is open.
func (o *object) do(fn function, args ...uintptr) error {
	if err := o.hold(); err != nil {
		return err
	}
	defer o.mu.RUnlock()
	return o.dev.do(fn, args...)
}

// shut closes an object, for which it calls functions of the driver. It returns the last error of these.
func (o *object) shut(functions ...function) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return o.dev.fault(backend.ErrClosed, "%s", o.kind)
	}
	o.closed = true
	for _, fn := range functions {
		if e := o.dev.do(fn, o.handle); e != nil {
			err = e
		}
	}
	return err
}

// event implements accel.Event.
type event struct{ object }

// Event implements accel.Device.
func (dev *device) Event() (accel.Event, error) {
	const noTiming = 2 // CU_EVENT_DISABLE_TIMING: makes waiting cheaper
	handle, err := dev.create(cuEventCreate, noTiming)
	if err != nil {
		return nil, err
	}
	return &event{object{dev: dev, handle: handle, kind: "event"}}, nil
}

// Sync implements accel.Event.
func (e *event) Sync() error { return e.do(cuEventSynchronize, e.handle) }

// Done implements accel.Event.
func (e *event) Done() (bool, error) {
	if err := e.hold(); err != nil {
		return false, err
	}
	defer e.mu.RUnlock()
	f, err := e.dev.enter()
	if err != nil {
		return false, err
	}
	defer e.dev.leave(f)
	switch r := f.call(cuEventQuery, e.handle); r {
	case success:
		return true, nil
	case errNotReady:
		return false, nil
	default:
		return false, e.dev.failed(r, cuEventQuery, "")
	}
}

// Close implements accel.Event.
func (e *event) Close() error { return e.shut(cuEventDestroy) }
