package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gather collects the send of all ranks in root's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it, with the same length of send, type and root.
//
// Buffers: on root, recv is as long as send times the number of ranks. Elsewhere recv is not used
// and may be nil. In place, root passes the same slice as send and recv, which already contains its
// own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Gather[T any](c *Comm, send, recv []T, root int) error {
	call, err := c.begin(backend.Gather)
	if err != nil {
		return err
	}
	setGather(c, call, send, recv, root)
	return c.run(call)
}

// Igather starts a [Gather] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Gather]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Gather] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	call := newCall()
	setGather(c, call, send, recv, root)
	return c.start(call)
}

// GatherInit prepares a [Gather] that can be started any number of times. It waits until all ranks
// have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Gather]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Gather]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Gather], in the call and in [Persistent.Wait].
func GatherInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	call := newCall()
	setGather(c, call, send, recv, root)
	return c.persist(call)
}

func setGather[T any](c *Comm, call *backend.Call, send, recv []T, root int) {
	setData(c, call, backend.Gather, send, recv, root)
	if !checkRoot(c, call) {
		return
	}
	if c.Rank() != root {
		call.Recv = nil
		return
	}
	setBlocks(c, call)
}

// Allgather collects the send of all ranks in every rank's recv, one block per rank in rank order.
//
// Collective: all ranks of c call it, with the same length of send and the same type.
//
// Buffers: recv is as long as send times the number of ranks. In place, a rank passes the same
// slice as send and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if
// the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Allgather[T any](c *Comm, send, recv []T) error {
	call, err := c.begin(backend.Allgather)
	if err != nil {
		return err
	}
	setAllgather(c, call, send, recv)
	return c.run(call)
}

// Iallgather starts an [Allgather] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Allgather]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Allgather] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed]
// and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	call := newCall()
	setAllgather(c, call, send, recv)
	return c.start(call)
}

// AllgatherInit prepares an [Allgather] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Allgather]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Allgather]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Allgather], in the call and in [Persistent.Wait].
func AllgatherInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	call := newCall()
	setAllgather(c, call, send, recv)
	return c.persist(call)
}

func setAllgather[T any](c *Comm, call *backend.Call, send, recv []T) {
	setData(c, call, backend.Allgather, send, recv, -1)
	if call.Err == nil {
		setBlocks(c, call)
	}
}

// setBlocks checks a call that sends one block and receives one from each rank, in place or not.
func setBlocks(c *Comm, call *backend.Call) {
	if inPlace(call) {
		n := elems(call, call.Recv)
		perRank(c, call, "recv", n)
		call.Count = n / c.Size()
		return
	}
	if checkInput(call) && checkBytes(call, "recv", call.Recv, c.Size()*len(call.Send)) {
		checkOverlap(call)
	}
}
