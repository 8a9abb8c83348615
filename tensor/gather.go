package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Allgather collects the ranks' send in every rank's recv, one after the other in the order of ranks.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type and
// number of elements.
//
// Tensors: contiguous, on any device; recv's shape is send's with the number of ranks in front of it, or
// with its first length multiplied by that. In place, with the same tensor as both, each rank's own block
// is already there; others that overlap are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer] for bad arguments; [cohort.ErrMismatch] on every rank if
// the ranks' calls differ; what a device's driver says, and [cohort.ErrBroken] on the other ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func Allgather[T cohort.Number](c *Comm, send, recv *Tensor[T]) error {
	return blocking(c, call[T]{coll: backend.Allgather, send: send, recv: recv})
}

// Iallgather starts an [Allgather].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [Allgather]; they belong to the operation until it is done.
func Iallgather[T cohort.Number](c *Comm, send, recv *Tensor[T]) (*Handle, error) {
	return start(c, call[T]{coll: backend.Allgather, send: send, recv: recv})
}

// Alltoall sends the i-th of as many equal blocks of send as there are ranks to rank i, and puts what comes
// from rank i into the i-th block of recv.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same type and
// number of elements.
//
// Tensors: contiguous, on any device, of the same number of elements, which is a multiple of the number of
// ranks. The same tensor as both works in place; others that overlap are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer] for bad arguments; [cohort.ErrMismatch] on every rank if
// the ranks' calls differ; what a device's driver says, and [cohort.ErrBroken] on the other ranks then.
//
// Deadline: [cohort.ErrTimeout], and there are no collectives of c any more.
func Alltoall[T cohort.Number](c *Comm, send, recv *Tensor[T]) error {
	return blocking(c, call[T]{coll: backend.Alltoall, send: send, recv: recv})
}

// Ialltoall starts an [Alltoall].
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Tensors: as for [Alltoall]; they belong to the operation until it is done.
func Ialltoall[T cohort.Number](c *Comm, send, recv *Tensor[T]) (*Handle, error) {
	return start(c, call[T]{coll: backend.Alltoall, send: send, recv: recv})
}
