package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gather collects the send of all ranks in root's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it with the same length of send, type and root.
//
// Buffers: on root, recv is as long as send times the number of ranks. Elsewhere recv is not used
// and may be nil. In place, root passes the same slice as send and recv, which already contains its
// own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
func Gather[T any](c *Comm, send, recv []T, root int) error {
	return c.run(data(c.begin(backend.Gather, root), send, recv))
}

// Igather is the nonblocking form of [Gather].
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	return c.start(data(newCall(backend.Gather, root), send, recv))
}

// GatherInit is the persistent form of [Gather].
func GatherInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	return c.persist(data(newCall(backend.Gather, root), send, recv))
}

// Allgather collects the send of all ranks in every rank's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it with the same length of send and the same type.
//
// Buffers: recv is as long as send times the number of ranks. In place, a rank passes the same slice
// as send and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
func Allgather[T any](c *Comm, send, recv []T) error {
	return c.run(data(c.begin(backend.Allgather, -1), send, recv))
}

// Iallgather is the nonblocking form of [Allgather].
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	return c.start(data(newCall(backend.Allgather, -1), send, recv))
}

// AllgatherInit is the persistent form of [Allgather].
func AllgatherInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	return c.persist(data(newCall(backend.Allgather, -1), send, recv))
}
