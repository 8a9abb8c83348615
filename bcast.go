package cohort

import "github.com/cohort-hpc/cohort/backend"

// Barrier returns when every rank of the communicator has called it.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] if a rank calls another collective (on mpi with [Main] or Config.Check);
// [ErrPeerLost] if a rank is lost or has closed c; [ErrBusy] if another goroutine is in a
// collective of c; [ErrComm], [ErrClosed] and [ErrBroken] if c is nil, closed or broken.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived (not always on mpi), and c is broken.
func (c *Comm) Barrier() error { return c.run(c.begin(backend.Barrier, -1)) }

// Ibarrier is the nonblocking form of [Comm.Barrier].
func (c *Comm) Ibarrier() (*Request, error) { return c.start(newCall(backend.Barrier, -1)) }

// BarrierInit is the persistent form of [Comm.Barrier].
func (c *Comm) BarrierInit() (*Persistent, error) { return c.persist(newCall(backend.Barrier, -1)) }

// Bcast copies root's buf into the buf of every other rank.
//
// Collective: all ranks of c call it with the same length, type and root.
//
// Buffers: buf is read on root and overwritten on the other ranks. It may be nil if the length is 0.
//
// Errors, deadline: as for [Comm.Barrier]; [ErrRoot] and [ErrType] for wrong arguments.
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
