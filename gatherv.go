package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gatherv collects the send of all ranks, which may differ in length, in root's recv. The counts[r]
// elements of rank r are stored at displs[r].
//
// Collective: all ranks of c call it, with the same type and root.
//
// Buffers: on root, counts and displs have one entry per rank, the blocks lie inside recv without
// overlapping, and send has counts[root] elements. Elsewhere recv, counts and displs are not used
// and may be nil, and send is as long as root's counts demand. In place, root passes the same slice
// as send and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls or lengths differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Gatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) error {
	call, err := c.begin(backend.Gatherv)
	if err != nil {
		return err
	}
	setGatherv(c, call, send, recv, counts, displs, root)
	return c.run(call)
}

// Igatherv starts a [Gatherv] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Gatherv]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Gatherv] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Igatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) (*Request, error) {
	call := newCall()
	setGatherv(c, call, send, recv, counts, displs, root)
	return c.start(call)
}

// GathervInit prepares a [Gatherv] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Gatherv]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Gatherv]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Gatherv], in the call and in [Persistent.Wait].
func GathervInit[T any](c *Comm, send, recv []T, counts, displs []int, root int) (*Persistent, error) {
	call := newCall()
	setGatherv(c, call, send, recv, counts, displs, root)
	return c.persist(call)
}

func setGatherv[T any](c *Comm, call *backend.Call, send, recv []T, counts, displs []int, root int) {
	setData(c, call, backend.Gatherv, send, recv, root)
	call.Count = 0
	if !checkRoot(c, call) {
		return
	}
	if c.Rank() != root {
		call.Recv = nil
		return
	}
	setGathered(c, call, counts, displs)
}

// Allgatherv collects the send of all ranks, which may differ in length, in every rank's recv. The
// counts[r] elements of rank r are stored at displs[r].
//
// Collective: all ranks of c call it, with the same counts and type; displs may differ.
//
// Buffers: counts and displs have one entry per rank, the blocks lie inside recv without
// overlapping, and send has counts[rank] elements. In place, a rank passes the same slice as send
// and recv, which already contains its own block; other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if
// the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Allgatherv[T any](c *Comm, send, recv []T, counts, displs []int) error {
	call, err := c.begin(backend.Allgatherv)
	if err != nil {
		return err
	}
	setAllgatherv(c, call, send, recv, counts, displs)
	return c.run(call)
}

// Iallgatherv starts an [Allgatherv] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Allgatherv]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Allgatherv] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed]
// and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iallgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (*Request, error) {
	call := newCall()
	setAllgatherv(c, call, send, recv, counts, displs)
	return c.start(call)
}

// AllgathervInit prepares an [Allgatherv] that can be started any number of times. It waits until
// all ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Allgatherv]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Allgatherv]. [Persistent.Wait] returns the failure of a
// started operation.
//
// Deadline: as for [Allgatherv], in the call and in [Persistent.Wait].
func AllgathervInit[T any](c *Comm, send, recv []T, counts, displs []int) (*Persistent, error) {
	call := newCall()
	setAllgatherv(c, call, send, recv, counts, displs)
	return c.persist(call)
}

func setAllgatherv[T any](c *Comm, call *backend.Call, send, recv []T, counts, displs []int) {
	setData(c, call, backend.Allgatherv, send, recv, -1)
	call.Count = 0
	if call.Err != nil || !setGathered(c, call, counts, displs) {
		return
	}
	for _, n := range counts {
		call.Count += n
	}
}

// setGathered checks a call that receives blocks of different lengths, and reports whether its
// arguments are correct.
func setGathered(c *Comm, call *backend.Call, counts, displs []int) bool {
	call.RecvCounts, call.RecvDispls = counts, displs
	return checkBlocks(c, call, "recv", call.Recv, counts, displs, true) &&
		(inPlace(call) ||
			checkBytes(call, "send", call.Send, counts[c.Rank()]*call.Type.Size) && checkOverlap(call))
}
