package cuda

import (
	"fmt"
	"unsafe"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
)

// stream implements accel.Stream.
type stream struct {
	object
	adopted bool
}

// Stream implements accel.Device.
func (dev *device) Stream() (accel.Stream, error) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING: does not wait for the default stream
	handle, err := dev.create(cuStreamCreate, nonBlocking)
	if err != nil {
		return nil, err
	}
	return &stream{object: object{dev: dev, handle: handle, kind: "stream"}}, nil
}

// Adopt implements accel.Device. The handle is a CUstream or cudaStream_t of the device. It must
// remain valid while the stream is used: the driver does not check it.
func (dev *device) Adopt(handle uintptr) accel.Stream {
	return &stream{object{dev: dev, handle: handle, kind: "stream"}, true}
}

// Handle implements accel.Stream.
func (s *stream) Handle() uintptr { return s.handle }

// ToHost implements accel.Stream.
func (s *stream) ToHost(dst []byte, src accel.Address) error { return s.transfer(dst, src, true) }

// ToDevice implements accel.Stream.
func (s *stream) ToDevice(dst accel.Address, src []byte) error { return s.transfer(src, dst, false) }

// transfer starts a copy between host and device. If the host memory is not pinned, it also waits
// for the copy. The driver usually waits itself, but not on systems whose devices access all host
// memory, and Go memory must stay in place.
func (s *stream) transfer(host []byte, a accel.Address, toHost bool) error {
	if err := s.hold(); err != nil {
		return err
	}
	defer s.mu.RUnlock()
	dev, n := s.dev, len(host)
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
	if err := s.hold(); err != nil {
		return err
	}
	defer s.mu.RUnlock()
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
	return ev, ev.hold()
}

// Sync implements accel.Stream.
func (s *stream) Sync() error { return s.do(cuStreamSynchronize, s.handle) }

// Close implements accel.Stream. It waits for the stream's work, and for calls that use the stream.
func (s *stream) Close() error {
	if s.adopted {
		return nil
	}
	return s.shut(cuStreamSynchronize, cuStreamDestroy)
}
