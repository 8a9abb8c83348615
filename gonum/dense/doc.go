// Package dense converts between tensors and gonum's matrices and vectors without copying: both
// share their elements.
//
//	grad := mat.NewDense(rows, cols, nil)
//	t, err := dense.FromDense(grad)
//	err = tensor.Allreduce(comm, t, t, tensor.Average)
//
// A matrix that is part of a wider one gives a tensor that is not contiguous, which operations take
// only after [tensor.Tensor.Compact].
package dense
