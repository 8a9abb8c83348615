package cohort

import "github.com/cohort-hpc/cohort/backend"

// Bcast copies root's buf into the buf of every other rank.
//
// Collective: all ranks of c call it with the same length, type and root.
//
// Buffers: buf is read on root and overwritten on the other ranks. It may be nil if the length is 0.
//
// Errors: [ErrRoot] and [ErrType] for wrong arguments; those of [Comm.Barrier].
//
// Deadline: as for [Comm.Barrier].
func Bcast[T any](c *Comm, buf []T, root int) error {
	return c.run(data(c.begin(backend.Bcast, root), buf, nil))
}

// Ibcast is the nonblocking form of [Bcast].
func Ibcast[T any](c *Comm, buf []T, root int) (*Request, error) {
	return c.start(data(newCall(backend.Bcast, root), buf, nil))
}

// BcastInit is the persistent form of [Bcast].
func BcastInit[T any](c *Comm, buf []T, root int) (*Persistent, error) {
	return c.persist(data(newCall(backend.Bcast, root), buf, nil))
}
