package cohort

import "github.com/cohort-hpc/cohort/backend"

// Reduce combines the ranks' send element by element with op, in an order that
// depends only on the number of ranks and the length, and stores the result in
// root's recv.
//
// Collective: all ranks of c call it, with the same length, type, op and root.
//
// Buffers: on root recv is as long as send; elsewhere recv is not used and may
// be nil. The same slice as both works in place; other overlaps are
// [ErrBuffer].
//
// Errors: [ErrRoot], [ErrOp], [ErrCount], [ErrBuffer], [ErrType] for bad
// arguments; [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Reduce[T Reducible](c *Comm, send, recv []T, op Op, root int) error {
	call, err := c.begin(backend.Reduce)
	if err != nil {
		return err
	}
	setReduce(c, call, send, recv, op, root)
	return c.run(call)
}

// Ireduce starts a [Reduce].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Reduce]; they belong to the operation until it is complete.
func Ireduce[T Reducible](c *Comm, send, recv []T, op Op, root int) (*Request, error) {
	call := newCall()
	setReduce(c, call, send, recv, op, root)
	return c.start(call)
}

// ReduceInit prepares a [Reduce] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Reduce]; each Start uses what they hold then.
func ReduceInit[T Reducible](c *Comm, send, recv []T, op Op, root int) (*Persistent, error) {
	call := newCall()
	setReduce(c, call, send, recv, op, root)
	return c.persist(call)
}

func setReduce[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op, root int) {
	setReduction(c, call, backend.Reduce, send, recv, op, root)
	if !checkRoot(c, call) {
		return
	}
	if c.Rank() != root {
		call.Recv = nil
		return
	}
	checkPair(call)
}

// Allreduce combines the ranks' send element by element with op, in an order
// that depends only on the number of ranks and the length, and stores the
// result in every rank's recv.
//
// Collective: all ranks of c call it, with the same length, type and op.
//
// Buffers: recv is as long as send. The same slice as both works in place;
// other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer], [ErrType] for bad arguments;
// [ErrMismatch] on every rank if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func Allreduce[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.Allreduce)
	if err != nil {
		return err
	}
	setAllreduce(c, call, send, recv, op)
	return c.run(call)
}

// Iallreduce starts an [Allreduce].
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
//
// Buffers: as for [Allreduce]; they belong to the operation until it is
// complete.
func Iallreduce[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setAllreduce(c, call, send, recv, op)
	return c.start(call)
}

// AllreduceInit prepares an [Allreduce] that can be started any number of
// times.
//
// Collective: all ranks of c call it, and all start it equally often.
//
// Buffers: as for [Allreduce]; each Start uses what they hold then.
func AllreduceInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	call := newCall()
	setAllreduce(c, call, send, recv, op)
	return c.persist(call)
}

func setAllreduce[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op) {
	setReduction(c, call, backend.Allreduce, send, recv, op, -1)
	checkPair(call)
}
