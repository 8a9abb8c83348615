package cohort

import "github.com/cohort-hpc/cohort/backend"

// Scan combines the send of ranks 0 to r element by element with op, in rank order, and stores the
// result in rank r's recv (inclusive prefix reduction).
//
// Collective: all ranks of c call it with the same length, type and op.
//
// Buffers: recv is as long as send. Passing the same slice as send and recv works in place; other
// overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
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
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
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
