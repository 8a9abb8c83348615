package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Scatter distributes root's send in equal blocks: rank r receives block r.
//
// Collective: all ranks of c call it, with the same length of recv, type and root.
//
// Buffers: on root, send is as long as recv times the number of ranks. Elsewhere send is not used
// and may be nil. In place, root passes the same slice as send and recv, and its own block stays
// where it is; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Scatter[T any](c *Comm, send, recv []T, root int) error {
	call, err := c.begin(backend.Scatter)
	if err != nil {
		return err
	}
	setScatter(c, call, send, recv, root)
	return c.run(call)
}

// Iscatter starts a [Scatter] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Scatter]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Scatter] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iscatter[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	call := newCall()
	setScatter(c, call, send, recv, root)
	return c.start(call)
}

// ScatterInit prepares a [Scatter] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Scatter]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Scatter]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Scatter], in the call and in [Persistent.Wait].
func ScatterInit[T any](c *Comm, send, recv []T, root int) (*Persistent, error) {
	call := newCall()
	setScatter(c, call, send, recv, root)
	return c.persist(call)
}

func setScatter[T any](c *Comm, call *backend.Call, send, recv []T, root int) {
	setData(c, call, backend.Scatter, send, recv, root)
	call.Count = len(recv)
	if !checkRoot(c, call) {
		return
	}
	switch {
	case c.Rank() != root:
		call.Send = nil
	case scatterInPlace(call):
		perRank(c, call, "send", len(send))
		call.Count = len(send) / c.Size()
	case checkOutput(call) && checkBytes(call, "send", call.Send, c.Size()*len(call.Recv)):
		checkOverlap(call)
	}
}

// scatterInPlace is inPlace for Scatter and Scatterv, whose data is in Send on the root.
func scatterInPlace(call *backend.Call) bool {
	if !view.Same(call.Send, call.Recv) {
		return false
	}
	call.InPlace, call.Recv = true, nil
	return true
}

// Scatterv distributes root's send in blocks that may differ in length: rank r receives the
// counts[r] elements at displs[r].
//
// Collective: all ranks of c call it, with the same type and root.
//
// Buffers: on root, counts and displs have one entry per rank, the blocks lie inside send, and recv
// has counts[root] elements; blocks may overlap. Elsewhere send, counts and displs are not used and
// may be nil, and recv is as long as root's counts demand. In place, root passes the same slice as
// send and recv, and its own block stays where it is; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls or lengths differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Scatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	call, err := c.begin(backend.Scatterv)
	if err != nil {
		return err
	}
	setScatterv(c, call, send, counts, displs, recv, root)
	return c.run(call)
}

// Iscatterv starts a [Scatterv] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Scatterv]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Scatterv] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iscatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (*Request, error) {
	call := newCall()
	setScatterv(c, call, send, counts, displs, recv, root)
	return c.start(call)
}

// ScattervInit prepares a [Scatterv] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Scatterv]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Scatterv]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Scatterv], in the call and in [Persistent.Wait].
func ScattervInit[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (*Persistent, error) {
	call := newCall()
	setScatterv(c, call, send, counts, displs, recv, root)
	return c.persist(call)
}

func setScatterv[T any](c *Comm, call *backend.Call, send []T, counts, displs []int, recv []T, root int) {
	setData(c, call, backend.Scatterv, send, recv, root)
	call.Count = 0
	if !checkRoot(c, call) {
		return
	}
	if c.Rank() != root {
		call.Send = nil
		return
	}
	call.SendCounts, call.SendDispls = counts, displs
	if checkBlocks(c, call, "send", call.Send, counts, displs, false) && !scatterInPlace(call) &&
		checkBytes(call, "recv", call.Recv, counts[root]*call.Type.Size) {
		checkOverlap(call)
	}
}
