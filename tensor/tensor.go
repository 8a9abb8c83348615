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
// device. Shape and strides are in elements; a tensor without dimensions has one element. It is
// contiguous if its elements follow each other row by row without gaps, which is what operations take.
//
// A tensor is a view of memory, as a slice is: what [Tensor.Sub], [Tensor.Reshape], and others return
// shares it. Any number of goroutines can read the elements at the same time, and none while one of
// them writes. A Tensor itself does not change.
type Tensor[T cohort.Number] struct {
	shape, strides []int
	n              int // elements

	data []T // on the processor: from the first element to the last

	dev    *Device // nil: the processor
	at     accel.Address
	own    *allocation  // memory of its own, of which this may be a part; nil: somebody else's
	stream accel.Stream // in whose order the device's memory is read and written
}

// allocation is memory of a device that is given back once.
type allocation struct {
	dev    accel.Device
	at     accel.Address
	closed atomic.Bool // from the moment on at which it is to be given back
	once   sync.Once
	err    error
}

// New returns a tensor of zeros in the processor's memory.
//
// Errors: [cohort.ErrCount] for a shape that has a negative length or too many elements;
// [cohort.ErrAlloc] for more than a process can address.
func New[T cohort.Number](shape ...int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("new", err)
	}
	data, err := allocate[T](n)
	if err != nil {
		return nil, failed("new", err)
	}
	return of(data, shape), nil
}

// allocate returns n zeros; an error where make would panic.
func allocate[T cohort.Number](n int) (data []T, err error) {
	defer func() {
		if recover() != nil {
			err = fault(cohort.ErrAlloc, "%d elements of %s are more than a process can have", n, typeName[T]())
		}
	}()
	return make([]T, n), nil
}

// Of returns a tensor over data, which it shares: row by row, as many elements as the shape has.
//
// Errors: [cohort.ErrCount] for a bad shape, or if data has another length.
func Of[T cohort.Number](data []T, shape ...int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err == nil && n != len(data) {
		err = fault(cohort.ErrCount, "the shape %v has %d elements, and the slice %d", slices.Clone(shape), n, len(data))
	}
	if err != nil {
		return nil, failed("of", err)
	}
	return of(data, shape), nil
}

// of returns a contiguous tensor over data.
func of[T cohort.Number](data []T, shape []int) *Tensor[T] {
	return &Tensor[T]{shape: slices.Clone(shape), strides: rowMajor(shape), n: len(data), data: data[:len(data):len(data)]}
}

// Strided returns a tensor over a part of data, which it shares: the element at (i, j, …) is
// data[i*strides[0]+j*strides[1]+…]. Strides of 0, and others by which elements share memory, are
// fine to read; [Copy] does not write to them.
//
// Errors: [cohort.ErrCount] for a bad shape, if there is not a stride for every dimension, or if one
// is negative; [cohort.ErrBuffer] if data is too short.
func Strided[T cohort.Number](data []T, shape, strides []int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("strided", err)
	}
	if len(strides) != len(shape) {
		return nil, failed("strided", fault(cohort.ErrCount, "%d strides for the %d dimensions of the shape %v", len(strides), len(shape), shape))
	}
	if slices.ContainsFunc(strides, func(s int) bool { return s < 0 }) {
		return nil, failed("strided", fault(cohort.ErrCount, "the strides %v have a negative one", strides))
	}
	end := extent(shape, strides)
	if end > len(data) {
		return nil, failed("strided", fault(cohort.ErrBuffer, "the shape %v with the strides %v needs %d elements, and there are %d", shape, strides, end, len(data)))
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

// Strides returns how many elements apart neighbours are, for each dimension.
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

// Device returns where the elements are.
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

// Data returns the elements of a contiguous tensor in the processor's memory, which it shares; nil of
// any other tensor.
func (t *Tensor[T]) Data() []T {
	if t == nil || t.dev != nil || !t.IsContiguous() {
		return nil
	}
	return t.data
}

// Raw returns the memory of a tensor on the processor from its first element to its last, with the
// gaps between them that its strides have; nil of a tensor on a device.
func (t *Tensor[T]) Raw() []T {
	if t == nil {
		return nil
	}
	return t.data
}

// Address returns where the first element of a tensor in a device's memory is; 0 of one in the
// processor's. Whoever follows it answers for it that the tensor is not closed meanwhile.
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

// Elem returns an element of a tensor in the processor's memory, by its index in each dimension. It
// is for a few of them: for all, there are [Tensor.Data] and [Tensor.Raw].
//
// Local.
//
// Errors: [cohort.ErrCount] for a wrong number of indices, or one out of range;
// [cohort.ErrNotSupported] on a device.
func (t *Tensor[T]) Elem(index ...int) (T, error) {
	i, err := t.offset(index)
	if err != nil {
		return 0, failed("elem", err)
	}
	return t.data[i], nil
}

// SetElem sets an element of a tensor in the processor's memory, and what shares memory with it.
//
// Local.
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

// offset returns where in data an element is.
func (t *Tensor[T]) offset(index []int) (int, error) {
	if err := t.usable(); err != nil {
		return 0, err
	}
	if len(index) != len(t.shape) {
		return 0, fault(cohort.ErrCount, "%d indices for the shape %v", len(index), t.shape)
	}
	at := 0
	for dim, i := range index {
		if i < 0 || i >= t.shape[dim] {
			return 0, fault(cohort.ErrCount, "the index %v is out of the shape %v", slices.Clone(index), t.shape)
		}
		at += i * t.strides[dim]
	}
	if t.dev != nil {
		return 0, fault(cohort.ErrNotSupported, "%v: elements of a device are not read or written one by one: copy it to the processor (To)", t)
	}
	if at >= len(t.data) { // the zero Tensor
		return 0, fault(cohort.ErrCount, "the tensor has no elements")
	}
	return at, nil
}

// usable returns an error for a tensor that is not there, or whose memory was given back.
func (t *Tensor[T]) usable() error {
	if t == nil {
		return fault(cohort.ErrBuffer, "the tensor is nil")
	}
	if t.own != nil && t.own.closed.Load() {
		return fault(cohort.ErrClosed, "%v: its memory was given back", t)
	}
	return nil
}

// needContiguous returns an error for a tensor that operations cannot take: one that is not usable, has no
// shape because nothing made it, or is not contiguous.
func (t *Tensor[T]) needContiguous() error {
	if err := t.usable(); err != nil {
		return err
	}
	if t.n == 0 && len(t.shape) == 0 {
		return fault(cohort.ErrBuffer, "the tensor is the zero Tensor, which has neither shape nor elements: make one with New, NewOn, or Of")
	}
	if !t.IsContiguous() {
		return fault(cohort.ErrBuffer, "%v is not contiguous, its strides are %v: use what its Compact returns", t, t.strides)
	}
	return nil
}

// size returns how many bytes a contiguous tensor has.
func (t *Tensor[T]) size() int { return t.n * view.Size[T]() }

// bytes returns the memory of a contiguous tensor of the processor's.
func (t *Tensor[T]) bytes() []byte { return view.Bytes(t.data) }
