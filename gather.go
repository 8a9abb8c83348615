package cohort

import "github.com/cohort-hpc/cohort/backend"

// Gather collects the ranks' send in root's recv, one block after the other in
// the order of ranks.
//
// Collective: all ranks of c call it, with the same length of send, type and
// root.
//
// Buffers: on root recv is as long as send times the number of ranks; elsewhere
// recv is not used and may be nil. In place, on root, with the same slice as
// both: root's own block is already there; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Gather[T any](c *Comm, send, recv []T, root int) error {
	call, err := c.begin(backend.Gather)
	if err != nil {
		return err
	}
	setGather(c, call, send, recv, root)
	return c.run(call)
}

// Igather starts a [Gather].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Gather]; they belong to the operation until it is complete.
func Igather[T any](c *Comm, send, recv []T, root int) (*Request, error) {
	call := newCall()
	setGather(c, call, send, recv, root)
	return c.start(call)
}

// GatherInit prepares a [Gather] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Gather]; each Start uses what they hold then.
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

// Allgather collects the ranks' send in every rank's recv, one block after the
// other in the order of ranks.
//
// Collective: all ranks of c call it, with the same length of send and type.
//
// Buffers: recv is as long as send times the number of ranks. In place, with
// the same slice as both, each rank's own block is already there; other
// overlaps are [ErrBuffer].
//
// Errors: [ErrCount], [ErrBuffer], [ErrType] for bad arguments; [ErrMismatch]
// on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Allgather[T any](c *Comm, send, recv []T) error {
	call, err := c.begin(backend.Allgather)
	if err != nil {
		return err
	}
	setAllgather(c, call, send, recv)
	return c.run(call)
}

// Iallgather starts an [Allgather].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Allgather]; they belong to the operation until it is
// complete.
func Iallgather[T any](c *Comm, send, recv []T) (*Request, error) {
	call := newCall()
	setAllgather(c, call, send, recv)
	return c.start(call)
}

// AllgatherInit prepares an [Allgather] that can be started any number of
// times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Allgather]; each Start uses what they hold then.
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

// setBlocks checks a call that sends one block and receives one from each rank,
// or does so in place.
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
