package cohort

import "github.com/cohort-hpc/cohort/backend"

// ReduceScatterBlock combines the send of all ranks element by element with op and divides the
// result into equal blocks: rank r receives block r. The order of combination depends only on the
// number of ranks and the length (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: send is as long as recv times the number of ranks. In place, a rank passes the same
// slice, which contains the whole input, as send and recv. Its block of the result is written to the
// beginning, and the rest is unspecified afterwards (MPI_IN_PLACE). Other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
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

// ReduceScatter combines the send of all ranks element by element with op and divides the result:
// the first counts[0] elements go to rank 0, the next counts[1] to rank 1, and so on. The order of
// combination depends only on the number of ranks and the length (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it with the same counts, type and op.
//
// Buffers: counts has one entry per rank, send is as long as their sum, and recv has counts[rank]
// elements. In place, a rank passes the same slice, which contains the whole input, as send and
// recv. Its block of the result is written to the beginning, and the rest is unspecified afterwards
// (MPI_IN_PLACE). Other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
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
