package dense

import (
	"fmt"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/blas/cblas128"
	"gonum.org/v1/gonum/mat"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/tensor"
)

// FromDense returns a tensor that shares the elements of a matrix. It is contiguous unless the
// matrix is part of a wider one.
//
// Not collective.
//
// Errors: [cohort.ErrBuffer] for a nil matrix, or one whose data are too short.
func FromDense(m *mat.Dense) (*tensor.Tensor[float64], error) {
	if m == nil {
		return nil, fault("fromdense", cohort.ErrBuffer, "the matrix is nil")
	}
	raw := m.RawMatrix()
	return strided("fromdense", raw.Data, []int{raw.Rows, raw.Cols}, []int{raw.Stride, 1})
}

// Dense returns a matrix that shares the elements of a tensor of two dimensions. A tensor without
// elements gives the empty matrix, whose size in gonum is always 0×0.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for another number of dimensions; [cohort.ErrBuffer] if the elements of
// a row are not adjacent, as in a transpose, or rows overlap; [cohort.ErrNotSupported] if the
// tensor is on a device.
func Dense(t *tensor.Tensor[float64]) (*mat.Dense, error) {
	rows, cols, stride, err := matrix("dense", t)
	if err != nil {
		return nil, err
	}
	m := new(mat.Dense)
	if t.Len() > 0 {
		m.SetRawMatrix(blas64.General{Rows: rows, Cols: cols, Stride: stride, Data: t.Raw()})
	}
	return m, nil
}

// FromCDense is [FromDense] for complex numbers.
//
// Not collective.
//
// Errors: those of [FromDense].
func FromCDense(m *mat.CDense) (*tensor.Tensor[complex128], error) {
	if m == nil {
		return nil, fault("fromcdense", cohort.ErrBuffer, "the matrix is nil")
	}
	raw := m.RawCMatrix()
	return strided("fromcdense", raw.Data, []int{raw.Rows, raw.Cols}, []int{raw.Stride, 1})
}

// CDense is [Dense] for complex numbers.
//
// Not collective.
//
// Errors: those of [Dense].
func CDense(t *tensor.Tensor[complex128]) (*mat.CDense, error) {
	rows, cols, stride, err := matrix("cdense", t)
	if err != nil {
		return nil, err
	}
	m := new(mat.CDense)
	if t.Len() > 0 {
		m.SetRawCMatrix(cblas128.General{Rows: rows, Cols: cols, Stride: stride, Data: t.Raw()})
	}
	return m, nil
}

// FromVec returns a tensor that shares the elements of a vector. It is contiguous if the vector is;
// a column of a matrix is not.
//
// Not collective.
//
// Errors: [cohort.ErrBuffer] for a nil vector, or one whose data are too short.
func FromVec(v *mat.VecDense) (*tensor.Tensor[float64], error) {
	if v == nil {
		return nil, fault("fromvec", cohort.ErrBuffer, "the vector is nil")
	}
	raw := v.RawVector()
	return strided("fromvec", raw.Data, []int{raw.N}, []int{raw.Inc})
}

// Vec returns a vector that shares the elements of a tensor of one dimension.
//
// Not collective.
//
// Errors: [cohort.ErrCount] for another number of dimensions; [cohort.ErrBuffer] if several
// elements share memory; [cohort.ErrNotSupported] if the tensor is on a device.
func Vec(t *tensor.Tensor[float64]) (*mat.VecDense, error) {
	shape, strides, err := onProcessor("vec", t, 1)
	if err != nil {
		return nil, err
	}
	v := new(mat.VecDense)
	switch n := shape[0]; {
	case n == 1:
		v.SetRawVector(blas64.Vector{N: 1, Inc: 1, Data: t.Raw()})
	case n > 1 && strides[0] == 0:
		return nil, fault("vec", cohort.ErrBuffer, "%v has stride 0; pass the result of its Compact method", t)
	case n > 1:
		v.SetRawVector(blas64.Vector{N: n, Inc: strides[0], Data: t.Raw()})
	}
	return v, nil
}

// strided returns a tensor over the data of a matrix or vector.
func strided[T float64 | complex128](op string, data []T, shape, strides []int) (*tensor.Tensor[T], error) {
	t, err := tensor.Strided(data, shape, strides)
	if err != nil { // only SetRawMatrix and its like can cause this
		return nil, fault(op, cohort.ErrBuffer, "shape %v with strides %v does not fit into %d elements", shape, strides, len(data))
	}
	return t, nil
}

// matrix returns gonum's size and stride for a tensor.
func matrix[T float64 | complex128](op string, t *tensor.Tensor[T]) (rows, cols, stride int, err error) {
	shape, strides, err := onProcessor(op, t, 2)
	if err != nil {
		return 0, 0, 0, err
	}
	rows, cols, stride = shape[0], shape[1], strides[0]
	if rows <= 1 {
		stride = cols
	}
	if t.Len() > 0 && (cols > 1 && strides[1] != 1 || stride < cols) {
		return 0, 0, 0, fault(op, cohort.ErrBuffer, "%v has strides %v, but gonum needs rows in order, each with adjacent elements; "+
			"pass the result of its Compact method", t, strides)
	}
	return rows, cols, stride, nil
}

// onProcessor returns the shape and strides of a tensor that gonum can access.
func onProcessor[T float64 | complex128](op string, t *tensor.Tensor[T], dims int) (shape, strides []int, err error) {
	switch shape = t.Shape(); {
	case t == nil:
		return nil, nil, fault(op, cohort.ErrBuffer, "the tensor is nil")
	case t.Device() != tensor.CPU:
		return nil, nil, fault(op, cohort.ErrNotSupported, "%v: gonum needs the processor's memory; copy the tensor there with To", t)
	case len(shape) != dims:
		return nil, nil, fault(op, cohort.ErrCount, "%v has %d dimensions, want %d", t, len(shape), dims)
	}
	return shape, t.Strides(), nil
}

// fault returns an error that wraps one of cohort's sentinels.
func fault(op string, sentinel error, format string, facts ...any) error {
	return fmt.Errorf("dense: %s: %s: %w", op, fmt.Sprintf(format, facts...), sentinel)
}
