package tensor

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Tensor is an array of numbers of any number of dimensions, in the memory of the processor or of a
// device. Shape and strides are in elements, the last dimension the fastest where it is contiguous;
// a tensor without dimensions has one element.
//
// A Tensor can be used by many goroutines at the same time as a slice can: those that only read.
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
	dev  accel.Device
	at   accel.Address
	once sync.Once
	err  error
}

// New returns a tensor of zeros in the processor's memory.
//
// Errors: [cohort.ErrCount] for a shape that has a negative length or too many elements.
func New[T cohort.Number](shape ...int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("new", err)
	}
	return of(make([]T, n), shape), nil
}

// Of returns a tensor over data, which it shares: row by row, as many elements as the shape has.
//
// Errors: [cohort.ErrCount] if data has another length.
func Of[T cohort.Number](data []T, shape ...int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err == nil && n != len(data) {
		err = fault(cohort.ErrCount, "the shape %v has %d elements, and the slice %d", shape, n, len(data))
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

// Strided returns a tensor over a part of data, which it shares: the element at (i, j, …) is
// data[i*strides[0]+j*strides[1]+…]. Collectives and messages take contiguous tensors only; see
// [Tensor.Compact].
//
// Errors: [cohort.ErrCount] if there is not a stride for every dimension, or one is negative;
// [cohort.ErrBuffer] if data is too short.
func Strided[T cohort.Number](data []T, shape, strides []int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, failed("strided", err)
	}
	if len(strides) != len(shape) {
		return nil, failed("strided", fault(cohort.ErrCount, "%d strides for the shape %v", len(strides), shape))
	}
	end := uint64(1) // one past the last element
	for i, d := range shape {
		if strides[i] < 0 {
			return nil, failed("strided", fault(cohort.ErrCount, "a negative stride in %v", strides))
		}
		over, far := bits.Mul64(uint64(max(d-1, 0)), uint64(strides[i]))
		if end += far; over != 0 || end > math.MaxInt64 {
			end = math.MaxInt64
		}
	}
	if n == 0 {
		end = 0
	}
	if end > uint64(len(data)) {
		return nil, failed("strided", fault(cohort.ErrBuffer, "the shape %v with the strides %v needs %d elements, and there are %d", shape, strides, end, len(data)))
	}
	return &Tensor[T]{shape: slices.Clone(shape), strides: slices.Clone(strides), n: n, data: data[:end:end]}, nil
}

// elements returns how many elements a shape has.
func elements[T cohort.Number](shape []int) (int, error) {
	size, n, empty := uint64(view.Size[T]()), uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fault(cohort.ErrCount, "the shape %v has a negative length", shape)
		}
		if d == 0 {
			empty = true
			continue
		}
		over, m := bits.Mul64(n, uint64(d))
		if over != 0 || m > math.MaxInt64/size {
			return 0, fault(cohort.ErrCount, "the shape %v has too many elements", shape)
		}
		n = m
	}
	if empty {
		return 0, nil
	}
	return int(n), nil
}

// rowMajor returns the strides of a contiguous tensor.
func rowMajor(shape []int) []int {
	strides := make([]int, len(shape))
	next := 1
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = next
		next *= max(shape[i], 1)
	}
	return strides
}

// Shape returns the lengths of the dimensions.
func (t *Tensor[T]) Shape() []int { return slices.Clone(t.shape) }

// Strides returns how many elements apart neighbours are, for each dimension.
func (t *Tensor[T]) Strides() []int { return slices.Clone(t.strides) }

// Len returns the number of elements.
func (t *Tensor[T]) Len() int { return t.n }

// Device returns where the elements are.
func (t *Tensor[T]) Device() *Device {
	if t.dev == nil {
		return CPU
	}
	return t.dev
}

// IsContiguous reports whether the elements follow each other row by row without gaps.
func (t *Tensor[T]) IsContiguous() bool {
	if t.n <= 1 {
		return true
	}
	next := 1
	for i := len(t.shape) - 1; i >= 0; i-- {
		if t.shape[i] > 1 && t.strides[i] != next {
			return false
		}
		next *= t.shape[i]
	}
	return true
}

// Data returns the elements of a contiguous tensor in the processor's memory, which it shares; nil of
// any other tensor.
func (t *Tensor[T]) Data() []T {
	if t.dev != nil || !t.IsContiguous() {
		return nil
	}
	return t.data
}

// Address returns where the first element of a tensor in a device's memory is; 0 of one in the
// processor's.
func (t *Tensor[T]) Address() uintptr { return uintptr(t.at) }

// String describes the tensor: its type, shape, and device.
func (t *Tensor[T]) String() string {
	return fmt.Sprintf("%s%v on %v", typeName[T](), t.shape, t.Device())
}

// size returns how many bytes a contiguous tensor has.
func (t *Tensor[T]) size() int { return t.n * view.Size[T]() }

// bytes returns the memory of a contiguous tensor of the processor's.
func (t *Tensor[T]) bytes() []byte { return view.Bytes(t.data) }
