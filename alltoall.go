package cohort

import "github.com/cohort-hpc/cohort/backend"

// Alltoall sends one block from every rank to every rank: block j of rank i's send becomes block i
// of rank j's recv.
//
// Collective: all ranks of c call it, with the same length and type.
//
// Buffers: send and recv are equally long, a multiple of the number of ranks. Passing the same
// slice as send and recv works in place; other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if
// the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Alltoall[T any](c *Comm, send, recv []T) error {
	call, err := c.begin(backend.Alltoall)
	if err != nil {
		return err
	}
	setAlltoall(c, call, send, recv)
	return c.run(call)
}

// Ialltoall starts an [Alltoall] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Alltoall]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Alltoall] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Ialltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	call := newCall()
	setAlltoall(c, call, send, recv)
	return c.start(call)
}

// AlltoallInit prepares an [Alltoall] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Alltoall]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Alltoall]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Alltoall], in the call and in [Persistent.Wait].
func AlltoallInit[T any](c *Comm, send, recv []T) (*Persistent, error) {
	call := newCall()
	setAlltoall(c, call, send, recv)
	return c.persist(call)
}

func setAlltoall[T any](c *Comm, call *backend.Call, send, recv []T) {
	setData(c, call, backend.Alltoall, send, recv, -1)
	if call.Err == nil && perRank(c, call, "send", len(send)) {
		call.Count = len(send) / c.Size()
		checkPair(call)
	}
}

// Alltoallv sends a block of any length from every rank to every rank. Rank i's scounts[j] elements
// at sdispls[j] are stored in rank j's recv at its rdispls[i]; rank j's rcounts[i] equals rank i's
// scounts[j].
//
// Collective: all ranks of c call it, with the same type.
//
// Buffers: counts and displacements have one entry per rank, and the blocks lie inside their
// buffer. The blocks of recv do not overlap. In place, a rank passes the same slice as send and
// recv: rcounts and rdispls then describe the blocks sent too, and scounts and sdispls are not used
// and may be nil. Other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if
// the ranks' calls or lengths differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Alltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	call, err := c.begin(backend.Alltoallv)
	if err != nil {
		return err
	}
	setAlltoallv(c, call, send, scounts, sdispls, recv, rcounts, rdispls)
	return c.run(call)
}

// Ialltoallv starts an [Alltoallv] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Alltoallv]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Alltoallv] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed]
// and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Ialltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Request, error) {
	call := newCall()
	setAlltoallv(c, call, send, scounts, sdispls, recv, rcounts, rdispls)
	return c.start(call)
}

// AlltoallvInit prepares an [Alltoallv] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Alltoallv]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Alltoallv]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Alltoallv], in the call and in [Persistent.Wait].
func AlltoallvInit[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Persistent, error) {
	call := newCall()
	setAlltoallv(c, call, send, scounts, sdispls, recv, rcounts, rdispls)
	return c.persist(call)
}

func setAlltoallv[T any](c *Comm, call *backend.Call, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) {
	setData(c, call, backend.Alltoallv, send, recv, -1)
	call.Count = 0
	if call.Err != nil || !checkBlocks(c, call, "recv", call.Recv, rcounts, rdispls, true) {
		return
	}
	call.RecvCounts, call.RecvDispls = rcounts, rdispls
	if inPlace(call) || !checkBlocks(c, call, "send", call.Send, scounts, sdispls, false) {
		return
	}
	call.SendCounts, call.SendDispls = scounts, sdispls
	if me := c.Rank(); scounts[me] != rcounts[me] {
		reject(call, ErrCount, "scounts[%d] is %d and rcounts[%d] is %d on rank %d; want the same", me, scounts[me], me, rcounts[me], me)
		return
	}
	checkOverlap(call)
}
