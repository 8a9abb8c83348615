package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Reduce combines the ranks' send element by element, and leaves the result in root's recv.
//
// Sums, products, and averages of [cohort.Float16] and [cohort.BFloat16] are made of float32, and rounded
// once at the end, to the nearest, ties to even.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type,
// number of elements, operation, and root.
//
// Tensors: contiguous, on any device; on root recv has send's shape, elsewhere it is not used and may be
// nil. The same tensor as both works in place; others that overlap are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrRoot], [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for bad arguments;
// [cohort.ErrMismatch] on every rank if the ranks' calls differ; what a device's driver says, and
// [cohort.ErrBroken] on the other ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func Reduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op, root int) error {
	return blocking(c, call[T]{coll: backend.Reduce, send: send, recv: recv, op: op, root: root})
}

// Ireduce starts a [Reduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [Reduce]; they belong to the operation until it is done.
func Ireduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op, root int) (*Handle, error) {
	return start(c, call[T]{coll: backend.Reduce, send: send, recv: recv, op: op, root: root})
}

// Allreduce combines the ranks' send element by element, and leaves the result in every rank's recv. Halves
// are combined as by [Reduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type,
// number of elements, and operation.
//
// Tensors: contiguous, of the same shape, on any device. The same tensor as both works in place; others
// that overlap are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for bad arguments; [cohort.ErrMismatch] on
// every rank if the ranks' calls differ; what a device's driver says, and [cohort.ErrBroken] on the other
// ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func Allreduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) error {
	return blocking(c, call[T]{coll: backend.Allreduce, send: send, recv: recv, op: op})
}

// Iallreduce starts an [Allreduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [Allreduce]; they belong to the operation until it is done.
func Iallreduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) (*Handle, error) {
	return start(c, call[T]{coll: backend.Allreduce, send: send, recv: recv, op: op})
}

// ReduceScatter combines the ranks' send element by element, and leaves the i-th of as many equal blocks of
// the result as there are ranks in rank i's recv. Halves are combined as by [Reduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type,
// number of elements, and operation.
//
// Tensors: contiguous, on any device; send's shape is recv's with the number of ranks in front of it, or
// with its first length multiplied by that. In place, with the same tensor as both, the result is at its
// beginning; others that overlap are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for bad arguments; [cohort.ErrMismatch] on
// every rank if the ranks' calls differ; what a device's driver says, and [cohort.ErrBroken] on the other
// ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func ReduceScatter[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) error {
	return blocking(c, call[T]{coll: backend.ReduceScatterBlock, send: send, recv: recv, op: op})
}

// IreduceScatter starts a [ReduceScatter].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [ReduceScatter]; they belong to the operation until it is done.
func IreduceScatter[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) (*Handle, error) {
	return start(c, call[T]{coll: backend.ReduceScatterBlock, send: send, recv: recv, op: op})
}
