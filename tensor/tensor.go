package tensor

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Tensor is an array of numbers of any number of dimensions, in the memory of the processor or of a
// device. Shape and strides count elements; a tensor without dimensions has one element. A tensor
// is contiguous if its elements follow each other row by row without gaps, which operations
// require.
//
// A tensor is a view of memory, as a slice is: the results of [Tensor.Sub], [Tensor.Reshape] and
// other methods share its memory. Any number of goroutines can read the elements at the same time
// if none writes them. A Tensor value itself does not change.
type Tensor[T cohort.Number] struct {
	shape, strides []int
	n              int // elements

	data []T // on the processor: from the first element to the last; RecvAppend may use the capacity

	dev    *Device // nil: the processor
	at     accel.Address
	room   int          // elements from the first one to the end of the memory, for RecvAppend
	own    *allocation  // memory allocated by this package, which may be larger than t; nil: memory of the caller
	stream accel.Stream // orders reads and writes of device memory
}

// allocation is device memory that is freed once.
type allocation struct {
	dev    accel.Device
	at     accel.Address
	closed atomic.Bool // set when Close is called
	once   sync.Once
	err    error
}

// New returns a tensor of zeros in the processor's memory.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a shape with a negative length or too many elements;
// [cohort.ErrAlloc] for more than a process can address.
func New[T cohort.Number](shape ...int) (*Tensor[T], error) {
	t, err := create[T](nil, shape)
	return t, failed("new", err)
}

// allocate returns n zeros, or an error where make would panic.
func allocate[T cohort.Number](n int) (data []T, err error) {
	defer func() {
		if recover() != nil {
			err = fault(cohort.ErrAlloc, "%d elements of %s exceed what a process can address", n, typeName[T]())
		}
	}()
	return make([]T, n), nil
}

// Of returns a tensor over data, in row-major order, without copying. The slice has as many
// elements as the shape.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a bad shape, or if data has another length.
func Of[T cohort.Number](data []T, shape ...int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err == nil && n != len(data) {
		err = fault(cohort.ErrCount, "shape %v has %d elements, but the slice has %d", slices.Clone(shape), n, len(data))
	}
	if err != nil {
		return nil, failed("of", err)
	}
	return of(data, shape), nil
}

// of returns a contiguous tensor over data.
func of[T cohort.Number](data []T, shape []int) *Tensor[T] {
	return &Tensor[T]{shape: slices.Clone(shape), strides: rowMajor(shape), n: len(data), data: data}
}

// Strided returns a tensor over part of data, without copying: the element at (i, j, …) is
// data[i*strides[0]+j*strides[1]+…]. Elements may share memory, as with strides of 0; such a tensor
// can be read, but [Copy] does not write to it.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a bad shape, a negative stride, or a number of strides other than
// the number of dimensions; [cohort.ErrBuffer] if data is too short.
func Strided[T cohort.Number](data []T, shape, strides []int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("strided", err)
	}
	if len(strides) != len(shape) {
		return nil, failed("strided", fault(cohort.ErrCount, "%d strides for the %d dimensions of shape %v", len(strides), len(shape), shape))
	}
	if slices.ContainsFunc(strides, func(s int) bool { return s < 0 }) {
		return nil, failed("strided", fault(cohort.ErrCount, "strides %v: a stride is negative", strides))
	}
	end := extent(shape, strides)
	if end > len(data) {
		return nil, failed("strided", fault(cohort.ErrBuffer, "shape %v with strides %v needs %d elements, but the slice has %d", shape, strides, end, len(data)))
	}
	return &Tensor[T]{shape: slices.Clone(shape), strides: slices.Clone(strides), n: n, data: data[:end:end]}, nil
}

// Shape returns the lengths of the dimensions.
func (t *Tensor[T]) Shape() []int {
	if t == nil {
		return nil
	}
	return slices.Clone(t.shape)
}

// Strides returns the distance between neighbors in each dimension, in elements.
func (t *Tensor[T]) Strides() []int {
	if t == nil {
		return nil
	}
	return slices.Clone(t.strides)
}

// Len returns the number of elements.
func (t *Tensor[T]) Len() int {
	if t == nil {
		return 0
	}
	return t.n
}

// Device returns the device that holds the elements.
func (t *Tensor[T]) Device() *Device {
	if t == nil || t.dev == nil {
		return CPU
	}
	return t.dev
}

// IsContiguous reports whether the elements follow each other row by row without gaps.
func (t *Tensor[T]) IsContiguous() bool {
	return t != nil && (t.n <= 1 || contiguous(t.shape, t.strides))
}

// Data returns the elements of a contiguous tensor in the processor's memory, without copying. It
// returns nil for any other tensor.
func (t *Tensor[T]) Data() []T {
	if t == nil || t.dev != nil || !t.IsContiguous() {
		return nil
	}
	return slices.Clip(t.data)
}

// Raw returns the memory of a tensor on the processor from its first element to its last, including
// the gaps between them. It returns nil for a tensor on a device.
func (t *Tensor[T]) Raw() []T {
	if t == nil {
		return nil
	}
	return slices.Clip(t.data)
}

// Address returns the address of the first element in device memory, or 0 for a tensor in the
// processor's memory. The caller must not use the address after the tensor is closed.
func (t *Tensor[T]) Address() uintptr {
	if t == nil {
		return 0
	}
	return uintptr(t.at)
}

// String describes the tensor: its type, shape, and device.
func (t *Tensor[T]) String() string {
	if t == nil {
		return "no tensor of " + typeName[T]()
	}
	return fmt.Sprintf("%s%v on %v", typeName[T](), t.shape, t.Device())
}

// Elem returns one element of a tensor in the processor's memory, given its index in each
// dimension. To read all elements, use [Tensor.Data] or [Tensor.Raw].
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a wrong number of indices, or an index out of range;
// [cohort.ErrNotSupported] on a device; [cohort.ErrBuffer] for a nil tensor.
func (t *Tensor[T]) Elem(index ...int) (T, error) {
	i, err := t.offset(index)
	if err != nil {
		return 0, failed("elem", err)
	}
	return t.data[i], nil
}

// SetElem sets one element of a tensor in the processor's memory.
//
// Not collective.
//
// Errors: those of [Tensor.Elem].
func (t *Tensor[T]) SetElem(value T, index ...int) error {
	i, err := t.offset(index)
	if err != nil {
		return failed("setelem", err)
	}
	t.data[i] = value
	return nil
}

// offset returns the position of an element in data.
func (t *Tensor[T]) offset(index []int) (int, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	if len(index) != len(t.shape) {
		return 0, fault(cohort.ErrCount, "%d indices for shape %v", len(index), t.shape)
	}
	at := 0
	for dim, i := range index {
		if i < 0 || i >= t.shape[dim] {
			return 0, fault(cohort.ErrCount, "index %v is outside shape %v", slices.Clone(index), t.shape)
		}
		at += i * t.strides[dim]
	}
	if t.dev != nil {
		return 0, fault(cohort.ErrNotSupported, "%v: single elements on a device cannot be accessed; copy the tensor to the processor with To", t)
	}
	if at >= len(t.data) { // the zero Tensor
		return 0, fault(cohort.ErrCount, "the tensor has no elements")
	}
	return at, nil
}

// usable returns an error for a tensor that is nil or closed.
func (t *Tensor[T]) usable() error {
	if t == nil {
		return fault(cohort.ErrBuffer, "the tensor is nil")
	}
	if t.own != nil && t.own.closed.Load() {
		return fault(cohort.ErrClosed, "%v is closed", t)
	}
	return nil
}

// needContiguous returns an error for a tensor that operations cannot take: one that is not usable,
// is the zero Tensor, or is not contiguous.
func (t *Tensor[T]) needContiguous() error {
	if err := t.usable(); err != nil {
		return err
	}
	if t.n == 0 && len(t.shape) == 0 {
		return fault(cohort.ErrBuffer, "the tensor is the zero Tensor, without shape and elements; make one with New, NewOn or Of")
	}
	if !t.IsContiguous() {
		return fault(cohort.ErrBuffer, "%v is not contiguous (strides %v); pass the result of its Compact method", t, t.strides)
	}
	return nil
}

// size returns the size of a contiguous tensor in bytes.
func (t *Tensor[T]) size() int { return t.n * view.Size[T]() }

// bytes returns the memory of a contiguous tensor on the processor.
func (t *Tensor[T]) bytes() []byte { return view.Bytes(t.data) }

// overlap reports whether two contiguous tensors share memory.
func overlap[T cohort.Number](a, b *Tensor[T]) bool {
	if a.dev != b.dev || a.n == 0 || b.n == 0 {
		return false
	}
	if a.dev == nil {
		return view.Overlap(a.bytes(), b.bytes())
	}
	return a.at < b.at+accel.Address(b.size()) && b.at < a.at+accel.Address(a.size())
}

// fault returns an error that wraps one of cohort's sentinels.
func fault(sentinel error, format string, facts ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, facts...), sentinel)
}

// failed adds the name of the failed function, in lower case. It returns nil for nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("tensor: %s: %w", op, err)
}
