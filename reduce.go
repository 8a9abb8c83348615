package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Reduce combines the send of all ranks element by element with op and stores the result in root's
// recv. The order of combination depends only on the number of ranks and the length (on mpi with
// Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type, op and root.
//
// Buffers: on root, recv is as long as send. Elsewhere recv is not used and may be nil. Passing the
// same slice as send and recv works in place; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
func Reduce[T Reducible](c *Comm, send, recv []T, op Op, root int) error {
	return c.run(reduction(c.begin(backend.Reduce, root), send, recv, op))
}

// Ireduce is the nonblocking form of [Reduce].
func Ireduce[T Reducible](c *Comm, send, recv []T, op Op, root int) (*Request, error) {
	return c.start(reduction(newCall(backend.Reduce, root), send, recv, op))
}

// ReduceInit is the persistent form of [Reduce].
func ReduceInit[T Reducible](c *Comm, send, recv []T, op Op, root int) (*Persistent, error) {
	return c.persist(reduction(newCall(backend.Reduce, root), send, recv, op))
}

// Allreduce combines the send of all ranks element by element with op and stores the result in every
// rank's recv. The order of combination depends only on the number of ranks and the length (on mpi
// with Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: recv is as long as send. Passing the same slice as send and recv works in place; other
// overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
func Allreduce[T Reducible](c *Comm, send, recv []T, op Op) error {
	return c.run(reduction(c.begin(backend.Allreduce, -1), send, recv, op))
}

// Iallreduce is the nonblocking form of [Allreduce].
func Iallreduce[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	return c.start(reduction(newCall(backend.Allreduce, -1), send, recv, op))
}

// AllreduceInit is the persistent form of [Allreduce].
func AllreduceInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	return c.persist(reduction(newCall(backend.Allreduce, -1), send, recv, op))
}

// ReduceLocal combines two slices of the calling rank: inout[i] becomes in[i] op inout[i], as if in
// came from a lower rank.
//
// Not collective. No communicator is involved.
//
// Buffers: in and inout are equally long and do not overlap.
//
// Errors: [ErrCount], [ErrBuffer], [ErrOp] and [ErrType] for wrong arguments.
func ReduceLocal[T Reducible](in, inout []T, op Op) error {
	o, err := opFor[T](op)
	return comm.ReduceLocal(o, view.Bytes(in), view.Bytes(inout), err)
}
