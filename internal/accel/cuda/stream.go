package cuda

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// stream implements accel.Stream.
type stream struct {
	dev     *device
	handle  uintptr
	adopted bool

	mu     sync.RWMutex // read-locked during calls, so that the driver never gets a closed handle
	closed bool
}

// Stream implements accel.Device.
func (dev *device) Stream() (accel.Stream, error) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING: does not wait for the default stream
	f, err := dev.enter()
	if err != nil {
		return nil, err
	}
	defer dev.leave(f)
	if r := f.call(cuStreamCreate, uintptr(unsafe.Pointer(&f.out[0])), nonBlocking); r != success {
		return nil, dev.failed(r, cuStreamCreate, "")
	}
	return &stream{dev: dev, handle: f.out[0]}, nil
}

// Adopt implements accel.Device. The handle is a CUstream or cudaStream_t of the device. It must
// remain valid while the stream is used: the driver does not check it.
func (dev *device) Adopt(handle uintptr) accel.Stream {
	return &stream{dev: dev, handle: handle, adopted: true}
}

// Handle implements accel.Stream.
func (s *stream) Handle() uintptr { return s.handle }

// do calls a function with the device's context, if the stream is open.
func (s *stream) do(fn function, args ...uintptr) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return s.dev.fault(backend.ErrClosed, "stream")
	}
	return s.dev.do(fn, args...)
}

// ToHost implements accel.Stream.
func (s *stream) ToHost(dst []byte, src accel.Address) error { return s.transfer(dst, src, true) }

// ToDevice implements accel.Stream.
func (s *stream) ToDevice(dst accel.Address, src []byte) error { return s.transfer(src, dst, false) }

// transfer starts a copy between host and device. If the host memory is not pinned, it also waits
// for the copy. The driver usually waits itself, but not on systems whose devices access all host
// memory, and Go memory must stay in place.
func (s *stream) transfer(host []byte, a accel.Address, toHost bool) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	dev, n := s.dev, len(host)
	if s.closed {
		return dev.fault(backend.ErrClosed, "stream")
	}
	if n == 0 {
		return nil
	}
	if err := dev.check(a, n); err != nil {
		return err
	}
	pinned := dev.driver.pinned(host)
	f, err := dev.enter()
	if err != nil {
		return err
	}
	defer dev.leave(f)
	fn := cuMemcpyHtoDAsync
	var r result
	// SAFETY: pinned memory stays in place until Unpin. Other memory is kept by the frame until the
	// copy is done.
	f.host = host
	if toHost {
		fn = cuMemcpyDtoHAsync
		r = f.call(fn, uintptr(unsafe.Pointer(unsafe.SliceData(host))), uintptr(a), uintptr(n), s.handle)
	} else {
		r = f.call(fn, uintptr(a), uintptr(unsafe.Pointer(unsafe.SliceData(host))), uintptr(n), s.handle)
	}
	if r == success && !pinned {
		fn = cuStreamSynchronize
		r = f.call(fn, s.handle)
	}
	if r != success {
		return dev.failed(r, fn, fmt.Sprintf(" of %d bytes", n))
	}
	return nil
}

// Within implements accel.Stream.
func (s *stream) Within(dst, src accel.Address, n int) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return s.dev.fault(backend.ErrClosed, "stream")
	}
	if n == 0 {
		return nil
	}
	if err := s.dev.check(dst, n); err != nil {
		return err
	}
	if err := s.dev.check(src, n); err != nil {
		return err
	}
	return s.dev.do(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(n), s.handle)
}

// Record implements accel.Stream.
func (s *stream) Record(e accel.Event) error {
	ev, err := s.event(e)
	if err != nil {
		return err
	}
	defer ev.mu.RUnlock()
	return s.do(cuEventRecord, ev.handle, s.handle)
}

// Follow implements accel.Stream.
func (s *stream) Follow(e accel.Event) error {
	ev, err := s.event(e)
	if err != nil {
		return err
	}
	defer ev.mu.RUnlock()
	return s.do(cuStreamWaitEvent, s.handle, ev.handle, 0)
}

// event returns an open event of this driver, read-locked.
func (s *stream) event(e accel.Event) (*event, error) {
	ev, ok := e.(*event)
	if !ok || ev == nil || ev.dev.driver != s.dev.driver {
		return nil, s.dev.fault(backend.ErrInternal, "the event belongs to another driver")
	}
	ev.mu.RLock()
	if ev.closed {
		ev.mu.RUnlock()
		return nil, s.dev.fault(backend.ErrClosed, "event")
	}
	return ev, nil
}

// Sync implements accel.Stream.
func (s *stream) Sync() error { return s.do(cuStreamSynchronize, s.handle) }

// Close implements accel.Stream. It waits for the stream's work, and for calls that use the stream.
func (s *stream) Close() error {
	if s.adopted {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.dev.fault(backend.ErrClosed, "stream")
	}
	s.closed = true
	waited := s.dev.do(cuStreamSynchronize, s.handle)
	if err := s.dev.do(cuStreamDestroy, s.handle); err != nil {
		return err
	}
	return waited
}
