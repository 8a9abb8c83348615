package cohort

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Scatter deals root's send out: rank r receives the r-th of as many equal
// blocks as there are ranks.
//
// Collective: all ranks of c call it, with the same length of recv, type and
// root.
//
// Buffers: on root send is as long as recv times the number of ranks; elsewhere
// send is not used and may be nil. In place, on root, with the same slice as
// both: root's own block stays where it is; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Scatter[T any](c *Comm, send, recv []T, root int) error {
	call, err := c.begin(backend.Scatter)
	if err != nil {
		return err
	}
	setScatter(c, call, send, recv, root)
	return c.run(call)
}

// Iscatter starts a [Scatter].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Scatter]; they belong to the operation until it is complete.
func Iscatter[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	call := newCall()
	setScatter(c, call, send, recv, root)
	return c.start(call)
}

// ScatterInit prepares a [Scatter] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Scatter]; each Start uses what they hold then.
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

// scatterInPlace is inPlace for the operations whose root keeps its block where
// it is: there the data is in Send.
func scatterInPlace(call *backend.Call) bool {
	if !view.Same(call.Send, call.Recv) {
		return false
	}
	call.InPlace, call.Recv = true, nil
	return true
}

// Scatterv deals root's send out in blocks of any lengths: rank r receives the
// counts[r] elements at displs[r].
//
// Collective: all ranks of c call it, with the same type and root.
//
// Buffers: on root counts and displs have one entry per rank, the blocks lie
// inside send, and root's own recv has counts[root] elements; blocks may share
// elements. Elsewhere send, counts and displs are not used and may be nil, and
// recv has the length that root's counts give it. In place, on root, with the
// same slice as both: root's own block stays where it is; other overlaps are
// [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Scatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) error {
	call, err := c.begin(backend.Scatterv)
	if err != nil {
		return err
	}
	setScatterv(c, call, send, counts, displs, recv, root)
	return c.run(call)
}

// Iscatterv starts a [Scatterv].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Scatterv]; they belong to the operation until it is
// complete.
func Iscatterv[T any](c *Comm, send []T, counts, displs []int, recv []T, root int) (*Request, error) {
	call := newCall()
	setScatterv(c, call, send, counts, displs, recv, root)
	return c.start(call)
}

// ScattervInit prepares a [Scatterv] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Scatterv]; each Start uses what they hold then.
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
