// Package dense makes tensors of gonum's matrices and vectors, and the other way round, without copying:
// both have the same elements, and to write to the one is to write to the other.
//
//	grad := mat.NewDense(rows, cols, nil)
//	t, err := dense.FromDense(grad)
//	err = tensor.Allreduce(comm, t, t, tensor.Average)
//
// A matrix that is a part of a wider one gives a tensor that is not contiguous, which operations do not
// take as it is: see [tensor.Tensor.Compact]. It is a package of its own, so that programs without gonum
// do not have it in them.
package dense
