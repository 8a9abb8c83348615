package cohort

import "github.com/cohort-hpc/cohort/backend"

// Bcast copies root's buf into the buf of every other rank.
//
// Collective: all ranks of c call it, with the same length, type and root.
//
// Buffers: buf is read on root and overwritten on the other ranks. It may be nil if the length is
// 0.
//
// Errors: [ErrRoot] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the ranks'
// calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Bcast[T any](c *Comm, buf []T, root int) error {
	call, err := c.begin(backend.Bcast)
	if err != nil {
		return err
	}
	setBcast(c, call, buf, root)
	return c.run(call)
}

// Ibcast starts a [Bcast] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Bcast]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Bcast] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Ibcast[T any](c *Comm, buf []T, root int) (*Request, error) {
	call := newCall()
	setBcast(c, call, buf, root)
	return c.start(call)
}

// BcastInit prepares a [Bcast] that can be started any number of times. It waits until all ranks
// have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Bcast]. Each Start uses the current contents; the slices belong to the operation
// until it is complete.
//
// Errors: the call returns those of [Bcast]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Bcast], in the call and in [Persistent.Wait].
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
