package tensor

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Device holds tensors: it is the processor or an accelerator. Many goroutines can use it at the
// same time.
type Device struct {
	kind    string
	acc     accel.Device // nil: the processor
	pins    pins
	streams freeList[accel.Stream]
	events  freeList[accel.Event]
}

// CPU is the processor.
var CPU = &Device{kind: "cpu"}

// newDevice returns a device of a driver.
func newDevice(kind string, acc accel.Device) *Device {
	return &Device{kind: kind, acc: acc, streams: freeList[accel.Stream]{create: acc.Stream, most: streamsKept},
		events: freeList[accel.Event]{create: acc.Event, most: eventsKept}}
}

// String returns cpu, or the device's kind and number, such as cuda:1.
func (d *Device) String() string {
	if d == nil || d.acc == nil {
		return CPU.kind
	}
	return fmt.Sprintf("%s:%d", d.kind, d.acc.Index())
}

// Index returns an accelerator's number, from 0, or -1 for the processor.
func (d *Device) Index() int {
	if d == nil || d.acc == nil {
		return -1
	}
	return d.acc.Index()
}

// Model returns the maker's name for an accelerator, or an empty string for the processor.
func (d *Device) Model() string {
	if d == nil || d.acc == nil {
		return ""
	}
	return d.acc.Model()
}

// Memory returns the free and the total memory of an accelerator in bytes, or 0 and 0 for the
// processor.
//
// Not collective.
//
// Errors: those of the device's driver.
func (d *Device) Memory() (free, total int, err error) {
	if d == nil || d.acc == nil {
		return 0, 0, nil
	}
	free, total, err = d.acc.Memory()
	return free, total, failed("memory", err)
}

// NewOn returns a tensor in newly allocated memory of a device. Its elements are undefined until
// they are written. Close frees the memory. On [CPU], or with a nil device, it is [New].
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a bad shape; [cohort.ErrAlloc] if the device has not enough memory.
func NewOn[T cohort.Number](d *Device, shape ...int) (*Tensor[T], error) {
	t, err := create[T](d, shape)
	return t, failed("newon", err)
}

// create returns a tensor in newly allocated memory.
func create[T cohort.Number](d *Device, shape []int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, err
	}
	if d == nil || d.acc == nil {
		data, err := allocate[T](n)
		if err != nil {
			return nil, err
		}
		return of(data, shape), nil
	}
	t := &Tensor[T]{shape: slices.Clone(shape), strides: rowMajor(shape), n: n, dev: d, stream: d.acc.Adopt(0)}
	if n == 0 {
		return t, nil
	}
	if t.at, err = d.acc.Alloc(t.size()); err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	t.own, t.room = &allocation{dev: d.acc, at: t.at}, n
	return t, nil
}

// At returns a tensor over an accelerator's memory that belongs to the caller or to another
// library, given the address of its first element. It copies nothing, and Close does not free the
// memory. The memory must stay allocated as long as the tensor is used.
//
// Not collective.
//
// Errors: [cohort.ErrNotSupported] on [CPU]; [cohort.ErrCount] for a bad shape; [cohort.ErrBuffer]
// if the memory is not the device's or too short for the shape, or if the address is not aligned
// for T.
func At[T cohort.Number](d *Device, address uintptr, shape ...int) (*Tensor[T], error) {
	if d == nil || d.acc == nil {
		return nil, failed("at", fault(cohort.ErrNotSupported, "a tensor on the processor cannot be made from an address; use Of"))
	}
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("at", err)
	}
	t := &Tensor[T]{shape: slices.Clone(shape), strides: rowMajor(shape), n: n, dev: d, at: accel.Address(address), stream: d.acc.Adopt(0)}
	if n == 0 {
		return t, nil
	}
	if align := alignment[T](); address%align != 0 {
		return nil, failed("at", fault(cohort.ErrBuffer, "address %#x is not a multiple of %d, as %s requires", address, align, typeName[T]()))
	}
	room, err := d.acc.Room(t.at)
	if err == nil && room < t.size() {
		err = fault(cohort.ErrBuffer, "%d bytes are allocated at %#x, but %v needs %d", room, address, t, t.size())
	}
	if err != nil {
		return nil, failed("at", err)
	}
	t.room = n
	return t, nil
}

// Close frees the device memory that the tensor was allocated with. No operation on it may be
// pending. Tensors that share the memory, such as the results of [Tensor.Sub] and [Tensor.On], are
// closed with it: operations on them return [cohort.ErrClosed]. Close does nothing if the tensor is
// closed already, is in the processor's memory, or was made by [At]. The garbage collector does not
// close tensors.
//
// Not collective.
//
// Errors: those of the device's driver.
func (t *Tensor[T]) Close() error {
	if t == nil || t.own == nil {
		return nil
	}
	a := t.own
	a.closed.Store(true)
	a.once.Do(func() {
		if err := a.dev.Free(a.at); err != nil {
			a.err = failed("close", err)
		}
	})
	return a.err
}

// Stream is a queue of work of an accelerator.
type Stream struct {
	dev *Device
	s   accel.Stream
}

// NewStream returns a new stream of an accelerator.
//
// Not collective.
//
// Errors: [cohort.ErrNotSupported] on [CPU]; those of the device's driver.
func (d *Device) NewStream() (*Stream, error) {
	if d == nil || d.acc == nil {
		return nil, failed("newstream", fault(cohort.ErrNotSupported, "the processor has no streams"))
	}
	s, err := d.acc.Stream()
	if err != nil {
		return nil, failed("newstream", err)
	}
	return &Stream{d, s}, nil
}

// StreamOf returns a stream for the handle of an existing one: a CUstream or cudaStream_t, or 0 for
// the default stream. Closing it does nothing.
//
// Not collective.
//
// Errors: [cohort.ErrNotSupported] on [CPU].
func (d *Device) StreamOf(handle uintptr) (*Stream, error) {
	if d == nil || d.acc == nil {
		return nil, failed("streamof", fault(cohort.ErrNotSupported, "the processor has no streams"))
	}
	return &Stream{d, d.acc.Adopt(handle)}, nil
}

func errNoStream() error {
	return fault(cohort.ErrBuffer, "the stream is nil; use NewStream or StreamOf")
}

// Handle returns the driver's handle of the stream.
func (s *Stream) Handle() uintptr {
	if s == nil || s.s == nil {
		return 0
	}
	return s.s.Handle()
}

// Sync waits until all work of the stream is done.
//
// Not collective.
//
// Errors: those of the device's driver, for any work of the stream.
func (s *Stream) Sync() error {
	if s == nil || s.s == nil {
		return failed("sync", errNoStream())
	}
	return failed("sync", s.s.Sync())
}

// Close waits for the stream's work and frees the stream. Tensors bound to it by [Tensor.On] must
// not be used afterwards.
//
// Not collective.
//
// Errors: those of the device's driver.
func (s *Stream) Close() error {
	if s == nil || s.s == nil {
		return nil
	}
	return failed("close", s.s.Close())
}

// On returns the same tensor, bound to a stream: operations read it after the work already in the
// stream, and later work of the stream sees what they wrote. A tensor that is not bound uses the
// default stream.
//
// Not collective.
//
// Errors: [cohort.ErrBuffer] if the tensor is not on the stream's device.
func (t *Tensor[T]) On(s *Stream) (*Tensor[T], error) {
	if err := t.usable(); err != nil {
		return nil, failed("on", err)
	}
	if s == nil || s.s == nil {
		return nil, failed("on", errNoStream())
	}
	if s.dev != t.dev {
		return nil, failed("on", fault(cohort.ErrBuffer, "the stream is on %v, but the tensor is %v", s.dev, t))
	}
	u := *t
	u.stream = s.s
	return &u, nil
}

// alignment returns the alignment of T in device memory; complex numbers are two floats.
func alignment[T cohort.Number]() uintptr {
	size := uintptr(view.Size[T]())
	switch kindOf[T]() {
	case backend.Complex64, backend.Complex128:
		return size / 2
	}
	return size
}
