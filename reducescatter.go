package cohort

import "github.com/cohort-hpc/cohort/backend"

// ReduceScatterBlock combines the ranks' send element by element with op, in an
// order that depends only on the number of ranks and the length, and gives each
// rank one block of the result: rank r the r-th of as many equal blocks as
// there are ranks.
//
// Collective: all ranks of c call it, with the same length, type and op.
//
// Buffers: send is as long as recv times the number of ranks. In place, with
// the same slice as both, the whole input stands in it and the rank's block of
// the result goes to its beginning, as MPI_IN_PLACE has it; what is behind it
// then is not specified. Other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func ReduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.ReduceScatterBlock)
	if err != nil {
		return err
	}
	setReduceScatterBlock(c, call, send, recv, op)
	return c.run(call)
}

// IreduceScatterBlock starts a [ReduceScatterBlock].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [ReduceScatterBlock]; they belong to the operation until it
// is complete.
func IreduceScatterBlock[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setReduceScatterBlock(c, call, send, recv, op)
	return c.start(call)
}

// ReduceScatterBlockInit prepares a [ReduceScatterBlock] that can be started
// any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [ReduceScatterBlock]; each Start uses what they hold then.
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

// ReduceScatter combines the ranks' send element by element with op, in an
// order that depends only on the number of ranks and the length, and gives each
// rank its block of the result: the first counts[0] elements to rank 0, the
// next counts[1] to rank 1, and so on.
//
// Collective: all ranks of c call it, with the same counts, type and op.
//
// Buffers: send is as long as the sum of counts, recv has counts[rank]
// elements. In place, with the same slice as both, the whole input stands in it
// and the rank's block of the result goes to its beginning, as MPI_IN_PLACE has
// it; what is behind it then is not specified. Other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func ReduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) error {
	call, err := c.begin(backend.ReduceScatter)
	if err != nil {
		return err
	}
	setReduceScatter(c, call, send, recv, counts, op)
	return c.run(call)
}

// IreduceScatter starts a [ReduceScatter].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [ReduceScatter]; they belong to the operation until it is
// complete.
func IreduceScatter[T Reducible](c *Comm, send, recv []T, counts []int, op Op) (*Request, error) {
	call := newCall()
	setReduceScatter(c, call, send, recv, counts, op)
	return c.start(call)
}

// ReduceScatterInit prepares a [ReduceScatter] that can be started any number
// of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [ReduceScatter]; each Start uses what they hold then.
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
			reject(call, ErrCount, "send has %d elements, less than the counts of ranks 0 to %d", len(send), i)
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
