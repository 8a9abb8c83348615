package tensor

import (
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/accel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// view returns a tensor over a part of t's memory that starts at an offset.
func (t *Tensor[T]) view(offset int, shape, strides []int) *Tensor[T] {
	u := *t
	u.shape, u.strides = shape, strides
	if t.n == 0 && len(shape) == 0 { // of the zero Tensor, which is no scalar
		return &u
	}
	u.n = 1
	for _, d := range shape {
		u.n *= d
	}
	if t.dev != nil {
		offset = min(offset, t.room) // it may be larger if there are no elements
		u.at += accel.Address(offset * view.Size[T]())
		u.room -= offset
	} else {
		offset = min(offset, cap(t.data))
		u.data = t.data[offset : offset+extent(shape, strides)]
	}
	return &u
}

// extended returns a tensor of the given shape that starts with the elements of t, which is
// contiguous. If t's memory has no room for it, the memory is new and may be a quarter longer than
// t, so that appending many short messages does not copy t for each.
func (t *Tensor[T]) extended(shape []int) (*Tensor[T], error) {
	n, err := elements[T](shape)
	if err != nil {
		return nil, err
	}
	if t.dev == nil && n <= cap(t.data) || t.dev != nil && n <= t.room {
		return t.view(0, shape, rowMajor(shape)), nil
	}
	u, err := create[T](t.dev, []int{max(n, t.n+t.n/4)})
	if err != nil {
		return nil, err
	}
	u.stream = t.stream
	if err := transfer(u.view(0, t.shape, t.strides), t); err != nil {
		_ = u.Close() // the error of the copy matters more
		return nil, err
	}
	return u.view(0, shape, rowMajor(shape)), nil
}

// Reshape returns the elements of a contiguous tensor, in the same order, as a tensor of another
// shape. It shares t's memory.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for a bad shape, or one with another number of elements;
// [cohort.ErrBuffer] if t is not contiguous.
func (t *Tensor[T]) Reshape(shape ...int) (*Tensor[T], error) {
	if err := t.needContiguous(); err != nil {
		return nil, failed("reshape", err)
	}
	n, err := elements[T](shape)
	if err == nil && n != t.n {
		err = fault(cohort.ErrCount, "shape %v has %d elements, but %v has %d", slices.Clone(shape), n, t, t.n)
	}
	if err != nil {
		return nil, failed("reshape", err)
	}
	return t.view(0, slices.Clone(shape), rowMajor(shape)), nil
}

// Sub returns the part of a tensor with indices lo to hi-1 in one dimension. It shares t's memory.
//
// Not collective.
//
// Errors: [cohort.ErrCount] if dim, lo or hi is out of range.
func (t *Tensor[T]) Sub(dim, lo, hi int) (*Tensor[T], error) {
	err := t.dimension(dim)
	if err == nil && (lo < 0 || hi < lo || hi > t.shape[dim]) {
		err = fault(cohort.ErrCount, "indices %d to %d are outside dimension %d of shape %v", lo, hi, dim, t.shape)
	}
	if err != nil {
		return nil, failed("sub", err)
	}
	shape := slices.Clone(t.shape)
	shape[dim] = hi - lo
	return t.view(t.start(dim, lo), shape, slices.Clone(t.strides)), nil
}

// Index returns the part of a tensor with one index in one dimension, as a tensor without that
// dimension. It shares t's memory.
//
// Not collective.
//
// Errors: [cohort.ErrCount] if dim or i is out of range.
func (t *Tensor[T]) Index(dim, i int) (*Tensor[T], error) {
	err := t.dimension(dim)
	if err == nil && (i < 0 || i >= t.shape[dim]) {
		err = fault(cohort.ErrCount, "index %d is outside dimension %d of shape %v", i, dim, t.shape)
	}
	if err != nil {
		return nil, failed("index", err)
	}
	return t.view(t.start(dim, i), slices.Delete(slices.Clone(t.shape), dim, dim+1), slices.Delete(slices.Clone(t.strides), dim, dim+1)), nil
}

// start returns the offset of index i in a dimension. If t has no elements, its strides may be of any size, and it is 0.
func (t *Tensor[T]) start(dim, i int) int {
	if t.n == 0 {
		return 0
	}
	return i * t.strides[dim]
}

// Permute returns a tensor with its dimensions in another order: its dimension i is dimension
// order[i] of t. It shares t's memory and is usually not contiguous.
//
// Not collective.
//
// Errors: [cohort.ErrCount] if order does not contain each dimension once.
func (t *Tensor[T]) Permute(order ...int) (*Tensor[T], error) {
	if err := t.usable(); err != nil {
		return nil, failed("permute", err)
	}
	shape, strides := make([]int, len(t.shape)), make([]int, len(t.shape))
	seen := make([]bool, len(t.shape))
	for i, from := range order {
		if len(order) != len(t.shape) || from < 0 || from >= len(t.shape) || seen[from] {
			return nil, failed("permute", fault(cohort.ErrCount, "order %v does not contain each dimension of shape %v once", slices.Clone(order), t.shape))
		}
		shape[i], strides[i], seen[from] = t.shape[from], t.strides[from], true
	}
	if len(order) != len(t.shape) {
		return nil, failed("permute", fault(cohort.ErrCount, "the order of the dimensions of shape %v is missing", t.shape))
	}
	return t.view(0, shape, strides), nil
}

// Transpose returns a tensor with its dimensions in reverse order. Like the result of
// [Tensor.Permute], it shares t's memory.
//
// Not collective.
//
// Errors: [cohort.ErrBuffer] for a nil tensor, [cohort.ErrClosed] for a closed one.
func (t *Tensor[T]) Transpose() (*Tensor[T], error) {
	if err := t.usable(); err != nil {
		return nil, failed("transpose", err)
	}
	shape, strides := slices.Clone(t.shape), slices.Clone(t.strides)
	slices.Reverse(shape)
	slices.Reverse(strides)
	return t.view(0, shape, strides), nil
}

// Compact returns a contiguous tensor with t's elements, on the same device. If t is contiguous it
// returns t itself, and closing the result closes t; otherwise it returns a copy.
//
// Not collective.
//
// Errors: those of [NewOn] and [Copy].
func (t *Tensor[T]) Compact() (*Tensor[T], error) {
	if err := t.usable(); err != nil {
		return nil, failed("compact", err)
	}
	if t.IsContiguous() {
		return t, nil
	}
	u, err := t.clone(t.dev)
	return u, failed("compact", err)
}

// To returns a contiguous copy of a tensor on a device, or on the processor for [CPU] or nil. It
// copies even if t is on that device already. The copy is complete when To returns; close it to
// free device memory.
//
// Not collective.
//
// Errors: those of [NewOn] and [Copy].
func (t *Tensor[T]) To(d *Device) (*Tensor[T], error) {
	if err := t.usable(); err != nil {
		return nil, failed("to", err)
	}
	u, err := t.clone(d)
	return u, failed("to", err)
}

// clone returns a copy of t on a device.
func (t *Tensor[T]) clone(d *Device) (*Tensor[T], error) {
	u, err := create[T](d, t.shape)
	if err != nil {
		return nil, err
	}
	if u.dev == t.dev {
		u.stream = t.stream
	}
	if err := transfer(u, t); err != nil {
		_ = u.Close() // the error of the copy matters more
		return nil, err
	}
	return u, nil
}

// dimension returns an error if dim is out of range.
func (t *Tensor[T]) dimension(dim int) error {
	if err := t.usable(); err != nil {
		return err
	}
	if dim < 0 || dim >= len(t.shape) {
		return fault(cohort.ErrCount, "dimension %d is outside shape %v", dim, t.shape)
	}
	return nil
}
