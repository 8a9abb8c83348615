package cuda

import (
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// event implements accel.Event.
type event struct {
	dev    *device
	handle uintptr

	mu     sync.RWMutex // read-locked during calls, so that the driver never gets a closed handle
	closed bool
}

// Event implements accel.Device.
func (dev *device) Event() (accel.Event, error) {
	const noTiming = 2 // CU_EVENT_DISABLE_TIMING: makes waiting cheaper
	f, err := dev.enter()
	if err != nil {
		return nil, err
	}
	defer dev.leave(f)
	if r := f.call(cuEventCreate, uintptr(unsafe.Pointer(&f.out[0])), noTiming); r != success {
		return nil, dev.failed(r, cuEventCreate, "")
	}
	return &event{dev: dev, handle: f.out[0]}, nil
}

// Sync implements accel.Event.
func (e *event) Sync() error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return e.dev.fault(backend.ErrClosed, "event")
	}
	return e.dev.do(cuEventSynchronize, e.handle)
}

// Done implements accel.Event.
func (e *event) Done() (bool, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return false, e.dev.fault(backend.ErrClosed, "event")
	}
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
func (e *event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return e.dev.fault(backend.ErrClosed, "event")
	}
	e.closed = true
	return e.dev.do(cuEventDestroy, e.handle)
}
