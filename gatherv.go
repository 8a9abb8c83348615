package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gatherv collects the ranks' send, of any lengths, in root's recv: rank r's
// counts[r] elements at displs[r].
//
// Collective: all ranks of c call it, with the same type and root.
//
// Buffers: on root counts and displs have one entry per rank, and the blocks
// lie inside recv and share no element; root's own send has counts[root]
// elements. Elsewhere recv, counts and displs are not used and may be nil. In
// place, on root, with the same slice as both: root's own block is already
// there; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Gatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) error {
	call, err := c.begin(backend.Gatherv)
	if err != nil {
		return err
	}
	setGatherv(c, call, send, recv, counts, displs, root)
	return c.run(call)
}

// Igatherv starts a [Gatherv].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Gatherv]; they belong to the operation until it is complete.
func Igatherv[T any](c *Comm, send, recv []T, counts, displs []int, root int) (*Request, error) {
	call := newCall()
	setGatherv(c, call, send, recv, counts, displs, root)
	return c.start(call)
}

// GathervInit prepares a [Gatherv] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Gatherv]; each Start uses what they hold then.
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

// Allgatherv collects the ranks' send, of any lengths, in every rank's recv:
// rank r's counts[r] elements at displs[r].
//
// Collective: all ranks of c call it, with the same counts and type; displs may
// differ.
//
// Buffers: counts and displs have one entry per rank, the blocks lie inside
// recv and share no element, and send has counts[rank] elements. In place, with
// the same slice as both, each rank's own block is already there; other
// overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer], [ErrType] for bad arguments; [ErrMismatch]
// on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Allgatherv[T any](c *Comm, send, recv []T, counts, displs []int) error {
	call, err := c.begin(backend.Allgatherv)
	if err != nil {
		return err
	}
	setAllgatherv(c, call, send, recv, counts, displs)
	return c.run(call)
}

// Iallgatherv starts an [Allgatherv].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Allgatherv]; they belong to the operation until it is
// complete.
func Iallgatherv[T any](c *Comm, send, recv []T, counts, displs []int) (*Request, error) {
	call := newCall()
	setAllgatherv(c, call, send, recv, counts, displs)
	return c.start(call)
}

// AllgathervInit prepares an [Allgatherv] that can be started any number of
// times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Allgatherv]; each Start uses what they hold then.
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

// setGathered checks a call that receives a block of its own length from each
// rank, and reports whether it is in order.
func setGathered(c *Comm, call *backend.Call, counts, displs []int) bool {
	call.RecvCounts, call.RecvDispls = counts, displs
	return checkBlocks(c, call, "recv", call.Recv, counts, displs, true) &&
		(inPlace(call) ||
			checkBytes(call, "send", call.Send, counts[c.Rank()]*call.Type.Size) && checkOverlap(call))
}
