package tensor

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Device is where tensors are: the processor, or an accelerator. It can be used by many goroutines at
// the same time.
type Device struct {
	kind  string
	acc   accel.Device // nil: the processor
	pins  pins
	cache cache
}

// CPU is the processor.
var CPU = &Device{kind: "cpu"}

// newDevice returns a device of a driver.
func newDevice(kind string, acc accel.Device) *Device { return &Device{kind: kind, acc: acc} }

// String returns cpu, or the device's kind and number, such as cuda:1.
func (d *Device) String() string {
	if d == nil || d.acc == nil {
		return CPU.kind
	}
	return fmt.Sprintf("%s:%d", d.kind, d.acc.Index())
}

// Index returns an accelerator's number, from 0; -1 for the processor.
func (d *Device) Index() int {
	if d == nil || d.acc == nil {
		return -1
	}
	return d.acc.Index()
}

// Model returns the maker's name for an accelerator; empty for the processor.
func (d *Device) Model() string {
	if d == nil || d.acc == nil {
		return ""
	}
	return d.acc.Model()
}

// Memory returns how many bytes of an accelerator's memory are free, and how many there are; 0 and 0
// for the processor.
//
// Local.
//
// Errors: what the driver says.
func (d *Device) Memory() (free, total int, err error) {
	if d == nil || d.acc == nil {
		return 0, 0, nil
	}
	if free, total, err = d.acc.Memory(); err != nil {
		return 0, 0, failed("memory", err)
	}
	return free, total, nil
}

// NewOn returns a tensor in memory of its own on a device, whose elements are anything until they are
// written; Close gives the memory back. On [CPU], which nil is too, it is [New].
//
// Local.
//
// Errors: [cohort.ErrCount] for a bad shape; [cohort.ErrAlloc] if the device has not enough memory.
func NewOn[T cohort.Number](d *Device, shape ...int) (*Tensor[T], error) {
	t, err := create[T](d, shape)
	if err != nil {
		return nil, failed("newon", err)
	}
	return t, nil
}

// create returns a tensor in memory of its own.
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
	t.own = &allocation{dev: d.acc, at: t.at}
	return t, nil
}

// At returns a tensor over memory of an accelerator that somebody else has, such as another library:
// the address of its first element. Nothing is copied, and Close leaves it; it must be there as long
// as the tensor is used.
//
// Local.
//
// Errors: [cohort.ErrNotSupported] on [CPU]; [cohort.ErrCount] for a bad shape; [cohort.ErrBuffer] if
// the memory is not the device's, does not go as far as the shape, or the address is not a multiple of
// the size of T's numbers.
func At[T cohort.Number](d *Device, address uintptr, shape ...int) (*Tensor[T], error) {
	if d == nil || d.acc == nil {
		return nil, failed("at", fault(cohort.ErrNotSupported, "the processor's memory is not taken by its address: use Of"))
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
		return nil, failed("at", fault(cohort.ErrBuffer, "the address %#x is not a multiple of %d, for %s", address, align, typeName[T]()))
	}
	room, err := d.acc.Room(t.at)
	if err == nil && room < t.size() {
		err = fault(cohort.ErrBuffer, "from %#x on there are %d bytes, and %v has %d", address, room, t, t.size())
	}
	if err != nil {
		return nil, failed("at", err)
	}
	return t, nil
}

// Close gives the device memory back that the tensor has of its own; no operation on it may be under
// way. What shares the memory, as [Tensor.Sub] and [Tensor.On] return it, is closed with it:
// operations on it give [cohort.ErrClosed]. To close again, or a tensor in the processor's memory, or
// one over memory of somebody else, does nothing. The garbage collector does not close tensors.
//
// Local.
//
// Errors: what the driver says.
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
// Local.
//
// Errors: [cohort.ErrNotSupported] on [CPU], and what the driver says.
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

// StreamOf returns the stream that somebody else made: a CUstream or cudaStream_t. 0 is the default
// stream. To close it does nothing.
//
// Local.
//
// Errors: [cohort.ErrNotSupported] on [CPU].
func (d *Device) StreamOf(handle uintptr) (*Stream, error) {
	if d == nil || d.acc == nil {
		return nil, failed("streamof", fault(cohort.ErrNotSupported, "the processor has no streams"))
	}
	return &Stream{d, d.acc.Adopt(handle)}, nil
}

func errNoStream() error {
	return fault(cohort.ErrBuffer, "the stream is nil: take one of NewStream or StreamOf")
}

// Handle returns what the driver knows the stream by.
func (s *Stream) Handle() uintptr {
	if s == nil || s.s == nil {
		return 0
	}
	return s.s.Handle()
}

// Sync waits until all work of the stream is done.
//
// Local.
//
// Errors: what the driver says, of any work of the stream.
func (s *Stream) Sync() error {
	if s == nil || s.s == nil {
		return failed("sync", errNoStream())
	}
	if err := s.s.Sync(); err != nil {
		return failed("sync", err)
	}
	return nil
}

// Close gives the stream back once its work is done. Tensors that are used in its order must not be
// used any more.
//
// Local.
//
// Errors: what the driver says.
func (s *Stream) Close() error {
	if s == nil || s.s == nil {
		return nil
	}
	if err := s.s.Close(); err != nil {
		return failed("close", err)
	}
	return nil
}

// On returns the same tensor for use in the order of a stream: operations read it after the work that
// was put into the stream before, and later work of the stream finds what they wrote. Without On the
// stream is the default one.
//
// Local.
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
		return nil, failed("on", fault(cohort.ErrBuffer, "the stream is one of %v, and the tensor %v", s.dev, t))
	}
	u := *t
	u.stream = s.s
	return &u, nil
}

// alignment returns what addresses of T are a multiple of: complex numbers are two floats.
func alignment[T cohort.Number]() uintptr {
	size := uintptr(view.Size[T]())
	switch kindOf[T]() {
	case backend.Complex64, backend.Complex128:
		return size / 2
	}
	return size
}
