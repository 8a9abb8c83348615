package tensor

import (
	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Barrier returns when every rank has called it and this rank's earlier collectives are done.
//
// Collective: all ranks of c call it, in the same order as its other collectives.
//
// Errors: [cohort.ErrMismatch] on every rank if another rank calls another collective.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func (c *Comm) Barrier() error { return blocking(c, call[uint8]{coll: backend.Barrier}) }

// Ibarrier starts a [Comm.Barrier]. The handle returns the errors.
//
// Collective; errors, deadline: as for [Comm.Barrier].
func (c *Comm) Ibarrier() (*Handle, error) { return start(c, call[uint8]{coll: backend.Barrier}) }

// Bcast copies root's tensor to the tensors of all ranks.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type, number of elements and root.
//
// Tensors: contiguous, on any device.
//
// Errors: [cohort.ErrRoot], [cohort.ErrBuffer] for wrong arguments; [cohort.ErrMismatch] on every
// rank if the calls of the ranks differ; the error of a device's driver on its rank, and
// [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func Bcast[T cohort.Number](c *Comm, t *Tensor[T], root int) error {
	return blocking(c, call[T]{coll: backend.Bcast, send: t, recv: t, root: root})
}

// Ibcast starts a [Bcast]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [Bcast].
func Ibcast[T cohort.Number](c *Comm, t *Tensor[T], root int) (*Handle, error) {
	return start(c, call[T]{coll: backend.Bcast, send: t, recv: t, root: root})
}

// Allgather collects the send tensors of all ranks in every rank's recv, in the order of ranks.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type and number of elements.
//
// Tensors: contiguous, on any device. The shape of recv is that of send, either preceded by a
// dimension of the number of ranks or with its first dimension multiplied by it. To work in place,
// pass the same tensor twice, with each rank's block already in position; tensors that overlap
// otherwise are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer] for wrong arguments; [cohort.ErrMismatch] on every
// rank if the calls of the ranks differ; the error of a device's driver on its rank, and
// [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func Allgather[T cohort.Number](c *Comm, send, recv *Tensor[T]) error {
	return blocking(c, call[T]{coll: backend.Allgather, send: send, recv: recv})
}

// Iallgather starts an [Allgather]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [Allgather].
func Iallgather[T cohort.Number](c *Comm, send, recv *Tensor[T]) (*Handle, error) {
	return start(c, call[T]{coll: backend.Allgather, send: send, recv: recv})
}

// Alltoall divides send into one equal block for each rank. Block i goes to rank i, and block i of
// recv comes from rank i.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type and number of elements.
//
// Tensors: contiguous, on any device, of the same number of elements, a multiple of the number of
// ranks. To work in place, pass the same tensor twice; tensors that overlap otherwise are
// [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer] for wrong arguments; [cohort.ErrMismatch] on every
// rank if the calls of the ranks differ; the error of a device's driver on its rank, and
// [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func Alltoall[T cohort.Number](c *Comm, send, recv *Tensor[T]) error {
	return blocking(c, call[T]{coll: backend.Alltoall, send: send, recv: recv})
}

// Ialltoall starts an [Alltoall]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [Alltoall].
func Ialltoall[T cohort.Number](c *Comm, send, recv *Tensor[T]) (*Handle, error) {
	return start(c, call[T]{coll: backend.Alltoall, send: send, recv: recv})
}

// Reduce combines the send tensors of all ranks element by element and stores the result in root's
// recv.
//
// Sums, products and averages of [cohort.Float16] and [cohort.BFloat16] are computed as float32 and
// rounded once at the end, to the nearest value, ties to even.
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type, number of elements, operation and root.
//
// Tensors: contiguous, on any device. On root, recv has the shape of send; elsewhere it is not used
// and may be nil. To work in place, pass the same tensor twice; tensors that overlap otherwise are
// [cohort.ErrBuffer].
//
// Errors: [cohort.ErrRoot], [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for wrong
// arguments; [cohort.ErrMismatch] on every rank if the calls of the ranks differ; the error of a
// device's driver on its rank, and [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func Reduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op, root int) error {
	return blocking(c, call[T]{coll: backend.Reduce, send: send, recv: recv, op: op, root: root})
}

// Ireduce starts a [Reduce]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [Reduce].
func Ireduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op, root int) (*Handle, error) {
	return start(c, call[T]{coll: backend.Reduce, send: send, recv: recv, op: op, root: root})
}

// Allreduce combines the send tensors of all ranks element by element and stores the result in
// every rank's recv. Float16 and BFloat16 are combined as in [Reduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type, number of elements and operation.
//
// Tensors: contiguous, of the same shape, on any device. To work in place, pass the same tensor
// twice; tensors that overlap otherwise are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for wrong arguments;
// [cohort.ErrMismatch] on every rank if the calls of the ranks differ; the error of a device's
// driver on its rank, and [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func Allreduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) error {
	return blocking(c, call[T]{coll: backend.Allreduce, send: send, recv: recv, op: op})
}

// Iallreduce starts an [Allreduce]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [Allreduce].
func Iallreduce[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) (*Handle, error) {
	return start(c, call[T]{coll: backend.Allreduce, send: send, recv: recv, op: op})
}

// ReduceScatter combines the send tensors of all ranks element by element, divides the result into
// one equal block for each rank, and stores block i in rank i's recv. Float16 and BFloat16 are
// combined as in [Reduce].
//
// Collective: all ranks of c call it, in the same order as its other collectives, with the same
// type, number of elements and operation.
//
// Tensors: contiguous, on any device. The shape of send is that of recv, either preceded by a
// dimension of the number of ranks or with its first dimension multiplied by it. To work in place,
// pass the same tensor twice; the result is then at its beginning. Tensors that overlap otherwise
// are [cohort.ErrBuffer].
//
// Errors: [cohort.ErrCount], [cohort.ErrBuffer], [cohort.ErrOp] for wrong arguments;
// [cohort.ErrMismatch] on every rank if the calls of the ranks differ; the error of a device's
// driver on its rank, and [cohort.ErrBroken] on the others.
//
// Deadline: [cohort.ErrTimeout]; later collectives of c return [cohort.ErrBroken].
func ReduceScatter[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) error {
	return blocking(c, call[T]{coll: backend.ReduceScatterBlock, send: send, recv: recv, op: op})
}

// IreduceScatter starts a [ReduceScatter]. The caller must not use the tensors until the handle is done, which returns the
// errors.
//
// Collective; errors, deadline: as for [ReduceScatter].
func IreduceScatter[T cohort.Number](c *Comm, send, recv *Tensor[T], op Op) (*Handle, error) {
	return start(c, call[T]{coll: backend.ReduceScatterBlock, send: send, recv: recv, op: op})
}
