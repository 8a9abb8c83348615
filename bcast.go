package cohort

import "github.com/cohort-hpc/cohort/backend"

// Bcast copies root's buf into every other rank's buf.
//
// Collective: all ranks of c call it, with the same length, type and root.
//
// Buffers: buf is read on root and overwritten elsewhere.
//
// Errors: [ErrRoot], [ErrType] for bad arguments; [ErrMismatch] on every rank
// if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Bcast[T any](c *Comm, buf []T, root int) error {
	call, err := c.begin(backend.Bcast)
	if err != nil {
		return err
	}
	setBcast(c, call, buf, root)
	return c.run(call)
}

// Ibcast starts a [Bcast].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Bcast]; they belong to the operation until it is complete.
func Ibcast[T any](c *Comm, buf []T, root int) (*Request, error) {
	call := newCall()
	setBcast(c, call, buf, root)
	return c.start(call)
}

// BcastInit prepares a [Bcast] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Bcast]; each Start uses what they hold then.
func BcastInit[T any](c *Comm, buf []T, root int) (*Persistent, error) {
	call := newCall()
	setBcast(c, call, buf, root)
	return c.persist(call)
}

func setBcast[T any](c *Comm, call *backend.Call, buf []T, root int) {
	setData(c, call, backend.Bcast, nil, buf, root)
	call.Count = len(buf)
	checkRoot(c, call)
}
