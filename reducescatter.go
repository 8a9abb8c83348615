package cohort

import "github.com/cohort-hpc/cohort/backend"

// ReduceScatterBlock combines the send of all ranks element by element with op and divides the
// result into equal blocks: rank r receives block r. The order of combination depends only on the
// number of ranks and the length (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it, with the same length, type and op.
//
// Buffers: send is as long as recv times the number of ranks. In place, a rank passes the same
// slice, which contains the whole input, as send and recv. Its block of the result is written to
// the beginning, and the rest is unspecified afterwards (MPI_IN_PLACE). Other overlaps are
// [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func ReduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.ReduceScatterBlock)
	if err != nil {
		return err
	}
	setReduceScatterBlock(c, call, send, recv, op)
	return c.run(call)
}

// IreduceScatterBlock starts a [ReduceScatterBlock] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [ReduceScatterBlock]. The slices belong to the operation until the request is
// complete.
//
// Errors: those of [ReduceScatterBlock] come from [Request.Wait]. The call returns [ErrComm],
// [ErrClosed] and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func IreduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setReduceScatterBlock(c, call, send, recv, op)
	return c.start(call)
}

// ReduceScatterBlockInit prepares a [ReduceScatterBlock] that can be started any number of times.
// It waits until all ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [ReduceScatterBlock]. Each Start uses the current contents; the slices belong to
// the operation until it is complete.
//
// Errors: the call returns those of [ReduceScatterBlock]. [Persistent.Wait] returns the failure of
// a started operation.
//
// Deadline: as for [ReduceScatterBlock], in the call and in [Persistent.Wait].
func ReduceScatterBlockInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	call := newCall()
	setReduceScatterBlock(c, call, send, recv, op)
	return c.persist(call)
}

func setReduceScatterBlock[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op) {
	setReduction(c, call, backend.ReduceScatterBlock, send, recv, op, -1)
	if call.Err != nil {
		return
	}
	if inPlace(call) {
		perRank(c, call, "send", len(recv))
		call.Count = len(recv) / c.Size()
		return
	}
	call.Count = len(recv)
	if checkOutput(call) && checkBytes(call, "send", call.Send, c.Size()*len(call.Recv)) {
		checkOverlap(call)
	}
}

// ReduceScatter combines the send of all ranks element by element with op and divides the result:
// the first counts[0] elements go to rank 0, the next counts[1] to rank 1, and so on. The order of
// combination depends only on the number of ranks and the length (on mpi with
// Config.Deterministic).
//
// Collective: all ranks of c call it, with the same counts, type and op.
//
// Buffers: counts has one entry per rank, send is as long as their sum, and recv has counts[rank]
// elements. In place, a rank passes the same slice, which contains the whole input, as send and
// recv. Its block of the result is written to the beginning, and the rest is unspecified afterwards
// (MPI_IN_PLACE). Other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func ReduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) error {
	call, err := c.begin(backend.ReduceScatter)
	if err != nil {
		return err
	}
	setReduceScatter(c, call, send, recv, counts, op)
	return c.run(call)
}

// IreduceScatter starts a [ReduceScatter] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [ReduceScatter]. The slices belong to the operation until the request is
// complete.
//
// Errors: those of [ReduceScatter] come from [Request.Wait]. The call returns [ErrComm],
// [ErrClosed] and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func IreduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) (*Request, error) {
	call := newCall()
	setReduceScatter(c, call, send, recv, counts, op)
	return c.start(call)
}

// ReduceScatterInit prepares a [ReduceScatter] that can be started any number of times. It waits
// until all ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [ReduceScatter]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [ReduceScatter]. [Persistent.Wait] returns the failure of a
// started operation.
//
// Deadline: as for [ReduceScatter], in the call and in [Persistent.Wait].
func ReduceScatterInit[T Reducible](c *Comm, send, recv []T, counts []int, op Op) (*Persistent, error) {
	call := newCall()
	setReduceScatter(c, call, send, recv, counts, op)
	return c.persist(call)
}

func setReduceScatter[T Reducible](c *Comm, call *backend.Call, send, recv []T, counts []int, op Op) {
	setReduction(c, call, backend.ReduceScatter, send, recv, op, -1)
	call.RecvCounts = counts
	if call.Err != nil || !checkCounts(c, call, "recv", counts) {
		return
	}
	sum := 0
	for i, n := range counts {
		switch {
		case n <= len(send)-sum:
		case send == nil:
			reject(call, ErrBuffer, "send is nil, rank %d's count is %d", i, n)
			return
		default:
			reject(call, ErrCount, "send has %d elements, fewer than the counts of ranks 0 to %d together", len(send), i)
			return
		}
		sum += n
	}
	call.Count = sum
	if !checkBytes(call, "send", call.Send, sum*call.Type.Size) || inPlace(call) {
		return
	}
	if checkBytes(call, "recv", call.Recv, counts[c.Rank()]*call.Type.Size) {
		checkOverlap(call)
	}
}
