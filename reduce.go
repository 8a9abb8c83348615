package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Reduce combines the send of all ranks element by element with op and stores the result in root's recv.
// The order of combination depends only on the number of ranks, the length and whether op commutes (on
// mpi with Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type, op and root.
//
// Buffers: on root, recv is as long as send. Elsewhere recv is not used and may be nil. Passing the
// same slice as send and recv works in place; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot], [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong
// arguments.
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
// rank's recv. The order of combination depends only on the number of ranks, the length and whether op
// commutes (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: recv is as long as send. Passing the same slice as send and recv works in place; other
// overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
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

// ReduceScatterBlock combines the send of all ranks element by element with op and divides the result
// into equal blocks: rank r receives block r. The order of combination depends only on the number of
// ranks, the length and whether op commutes (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: send is as long as recv times the number of ranks. In place, a rank passes the same
// slice, which contains the whole input, as send and recv. Its block of the result is written to the
// beginning, and the rest is unspecified afterwards (MPI_IN_PLACE). Other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func ReduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) error {
	return c.run(reduction(c.begin(backend.ReduceScatterBlock, -1), send, recv, op))
}

// IreduceScatterBlock is the nonblocking form of [ReduceScatterBlock].
func IreduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	return c.start(reduction(newCall(backend.ReduceScatterBlock, -1), send, recv, op))
}

// ReduceScatterBlockInit is the persistent form of [ReduceScatterBlock].
func ReduceScatterBlockInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	return c.persist(reduction(newCall(backend.ReduceScatterBlock, -1), send, recv, op))
}

// ReduceScatter combines the send of all ranks element by element with op and divides the result: the
// first counts[0] elements go to rank 0, the next counts[1] to rank 1, and so on. The order of
// combination depends only on the number of ranks, the length and whether op commutes (on mpi with
// Config.Deterministic).
//
// Collective: all ranks of c call it with the same counts, type and op.
//
// Buffers: counts has one entry per rank, send is as long as their sum, and recv has counts[rank]
// elements. In place, a rank passes the same slice, which contains the whole input, as send and
// recv. Its block of the result is written to the beginning, and the rest is unspecified afterwards
// (MPI_IN_PLACE). Other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func ReduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) error {
	return c.run(recvParts(reduction(c.begin(backend.ReduceScatter, -1), send, recv, op), counts, nil))
}

// IreduceScatter is the nonblocking form of [ReduceScatter].
func IreduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) (*Request, error) {
	return c.start(recvParts(reduction(newCall(backend.ReduceScatter, -1), send, recv, op), counts, nil))
}

// ReduceScatterInit is the persistent form of [ReduceScatter].
func ReduceScatterInit[T Reducible](c *Comm, send, recv []T, counts []int, op Op) (*Persistent, error) {
	return c.persist(recvParts(reduction(newCall(backend.ReduceScatter, -1), send, recv, op), counts, nil))
}

// Scan combines the send of ranks 0 to r element by element with op, in rank order, and stores the
// result in rank r's recv (inclusive prefix reduction).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: recv is as long as send. Passing the same slice as send and recv works in place; other
// overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Scan[T Reducible](c *Comm, send, recv []T, op Op) error {
	return c.run(reduction(c.begin(backend.Scan, -1), send, recv, op))
}

// Iscan is the nonblocking form of [Scan].
func Iscan[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	return c.start(reduction(newCall(backend.Scan, -1), send, recv, op))
}

// ScanInit is the persistent form of [Scan].
func ScanInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	return c.persist(reduction(newCall(backend.Scan, -1), send, recv, op))
}

// Exscan combines the send of ranks 0 to r-1 element by element with op, in rank order, and stores
// the result in rank r's recv (exclusive prefix reduction). Rank 0's recv is not changed.
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: recv is as long as send; on rank 0 it may be nil. Passing the same slice as send and recv
// works in place; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Comm.Barrier]; [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments.
func Exscan[T Reducible](c *Comm, send, recv []T, op Op) error {
	return c.run(reduction(c.begin(backend.Exscan, -1), send, recv, op))
}

// Iexscan is the nonblocking form of [Exscan].
func Iexscan[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	return c.start(reduction(newCall(backend.Exscan, -1), send, recv, op))
}

// ExscanInit is the persistent form of [Exscan].
func ExscanInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	return c.persist(reduction(newCall(backend.Exscan, -1), send, recv, op))
}
