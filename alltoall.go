package cohort

import "github.com/cohort-hpc/cohort/backend"

// Alltoall exchanges one block between every two ranks: the j-th block of rank
// i's send becomes the i-th block of rank j's recv.
//
// Collective: all ranks of c call it, with the same length and type.
//
// Buffers: send and recv are equally long, a multiple of the number of ranks.
// The same slice as both works in place; other overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer], [ErrType] for bad arguments; [ErrMismatch]
// on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Alltoall[T any](c *Comm, send, recv []T) error {
	call, err := c.begin(backend.Alltoall)
	if err != nil {
		return err
	}
	setAlltoall(c, call, send, recv)
	return c.run(call)
}

// Ialltoall starts an [Alltoall].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Alltoall]; they belong to the operation until it is
// complete.
func Ialltoall[T any](c *Comm, send, recv []T) (*Request, error) {
	call := newCall()
	setAlltoall(c, call, send, recv)
	return c.start(call)
}

// AlltoallInit prepares an [Alltoall] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Alltoall]; each Start uses what they hold then.
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

// Alltoallv exchanges one block of any length between every two ranks: rank i's
// scounts[j] elements at sdispls[j] go to rank j's recv at its rdispls[i],
// where rcounts[i] says how many they are.
//
// Collective: all ranks of c call it, with the same type.
//
// Buffers: counts and displs have one entry per rank, the blocks lie inside
// their buffer, and those of recv share no element. In place, with the same
// slice as both, the blocks sent are those described by rcounts and rdispls,
// and scounts and sdispls are not used and may be nil; other overlaps are
// [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer], [ErrType] for bad arguments; [ErrMismatch]
// on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Alltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) error {
	call, err := c.begin(backend.Alltoallv)
	if err != nil {
		return err
	}
	setAlltoallv(c, call, send, scounts, sdispls, recv, rcounts, rdispls)
	return c.run(call)
}

// Ialltoallv starts an [Alltoallv].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Alltoallv]; they belong to the operation until it is
// complete.
func Ialltoallv[T any](c *Comm, send []T, scounts, sdispls []int, recv []T, rcounts, rdispls []int) (*Request, error) {
	call := newCall()
	setAlltoallv(c, call, send, scounts, sdispls, recv, rcounts, rdispls)
	return c.start(call)
}

// AlltoallvInit prepares an [Alltoallv] that can be started any number of
// times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Alltoallv]; each Start uses what they hold then.
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
		reject(call, ErrCount, "scounts[%d] is %d and rcounts[%d] is %d, both on rank %d", me, scounts[me], me, rcounts[me], me)
		return
	}
	checkOverlap(call)
}
