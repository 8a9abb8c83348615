package tensor

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Device is where tensors are: the processor, or an accelerator. It can be used by many goroutines at
// the same time.
type Device struct {
	kind string
	acc  accel.Device // nil: the processor
	pins pins
}

// CPU is the processor.
var CPU = &Device{kind: "cpu"}

// String returns cpu, or the device's kind and number, such as cuda:1.
func (d *Device) String() string {
	if d.acc == nil {
		return d.kind
	}
	return fmt.Sprintf("%s:%d", d.kind, d.acc.Index())
}

// Model returns the maker's name for an accelerator; empty for the processor.
func (d *Device) Model() string {
	if d.acc == nil {
		return ""
	}
	return d.acc.Model()
}

// Memory returns how many bytes of an accelerator's memory are free, and how many there are; 0 and 0
// for the processor.
func (d *Device) Memory() (free, total int, err error) {
	if d.acc == nil {
		return 0, 0, nil
	}
	return d.acc.Memory()
}

// NewOn returns a tensor in memory of its own on a device, whose elements are anything until they are
// written; Close gives the memory back. On [CPU] it is [New].
//
// Errors: [cohort.ErrCount] for a bad shape, [cohort.ErrAlloc] if the device has not enough memory.
func NewOn[T cohort.Number](d *Device, shape ...int) (*Tensor[T], error) {
	if d == nil || d.acc == nil {
		return New[T](shape...)
	}
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("newon", err)
	}
	t := &Tensor[T]{shape: slices.Clone(shape), strides: rowMajor(shape), n: n, dev: d, stream: d.acc.Adopt(0)}
	if n == 0 {
		return t, nil
	}
	if t.at, err = d.acc.Alloc(t.size()); err != nil {
		return nil, failed("newon", fmt.Errorf("%s%v on %v: %w", typeName[T](), shape, d, err))
	}
	t.own = &allocation{dev: d.acc, at: t.at}
	return t, nil
}

// At returns a tensor over memory of an accelerator that somebody else has, such as another library:
// the address of its first element. Nothing is copied, and Close leaves it; it must be there as long
// as the tensor is used.
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
		err = fault(cohort.ErrBuffer, "from %#x on there are %d bytes, and %s%v has %d", address, room, typeName[T](), shape, t.size())
	}
	if err != nil {
		return nil, failed("at", err)
	}
	return t, nil
}

// Close gives the device memory back that the tensor has of its own; it must not be in use. To close
// again, or a tensor in the processor's memory, does nothing. Tensors that share the memory, as
// [Tensor.On] returns them, must not be used after it.
func (t *Tensor[T]) Close() error {
	a := t.own
	if a == nil {
		return nil
	}
	a.once.Do(func() { a.err = a.dev.Free(a.at) })
	return a.err
}

// Stream is a queue of work of an accelerator.
type Stream struct {
	dev *Device
	s   accel.Stream
}

// NewStream returns a new stream of an accelerator.
//
// Errors: [cohort.ErrNotSupported] on [CPU], and what the driver says.
func (d *Device) NewStream() (*Stream, error) {
	if d.acc == nil {
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
// Errors: [cohort.ErrNotSupported] on [CPU].
func (d *Device) StreamOf(handle uintptr) (*Stream, error) {
	if d.acc == nil {
		return nil, failed("streamof", fault(cohort.ErrNotSupported, "the processor has no streams"))
	}
	return &Stream{d, d.acc.Adopt(handle)}, nil
}

// Handle returns what the driver knows the stream by.
func (s *Stream) Handle() uintptr { return s.s.Handle() }

// Sync waits until all work of the stream is done.
func (s *Stream) Sync() error { return s.s.Sync() }

// Close gives the stream back once its work is done.
func (s *Stream) Close() error { return s.s.Close() }

// On returns the same tensor for use in the order of a stream: operations read it after the work that
// was put into the stream before, and later work of the stream finds what they wrote. Without On the
// stream is the default one.
//
// Errors: [cohort.ErrBuffer] if the tensor is not on the stream's device.
func (t *Tensor[T]) On(s *Stream) (*Tensor[T], error) {
	if s == nil || s.dev != t.dev {
		return nil, failed("on", fault(cohort.ErrBuffer, "the tensor is on %v, and the stream is another device's", t.Device()))
	}
	u := *t
	u.stream = s.s
	return &u, nil
}

// alignment returns what addresses of T are a multiple of: complex numbers are two floats.
func alignment[T cohort.Number]() uintptr {
	size := uintptr(view.Size[T]())
	switch any(*new(T)).(type) {
	case complex64, complex128:
		return size / 2
	}
	return size
}
