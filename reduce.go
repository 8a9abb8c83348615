package cohort

import "github.com/cohort-hpc/cohort/backend"

// Reduce combines the send of all ranks element by element with op and stores the result in root's
// recv. The order of combination depends only on the number of ranks and the length (on mpi with
// Config.Deterministic).
//
// Collective: all ranks of c call it, with the same length, type, op and root.
//
// Buffers: on root, recv is as long as send. Elsewhere recv is not used and may be nil. Passing the
// same slice as send and recv works in place; other overlaps are [ErrBuffer].
//
// Errors: [ErrRoot], [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments;
// [ErrMismatch] on every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Reduce[T Reducible](c *Comm, send, recv []T, op Op, root int) error {
	call, err := c.begin(backend.Reduce)
	if err != nil {
		return err
	}
	setReduce(c, call, send, recv, op, root)
	return c.run(call)
}

// Ireduce starts a [Reduce] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Reduce]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Reduce] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Ireduce[T Reducible](c *Comm, send, recv []T, op Op, root int) (*Request, error) {
	call := newCall()
	setReduce(c, call, send, recv, op, root)
	return c.start(call)
}

// ReduceInit prepares a [Reduce] that can be started any number of times. It waits until all ranks
// have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Reduce]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Reduce]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Reduce], in the call and in [Persistent.Wait].
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

// Allreduce combines the send of all ranks element by element with op and stores the result in
// every rank's recv. The order of combination depends only on the number of ranks and the length
// (on mpi with Config.Deterministic).
//
// Collective: all ranks of c call it, with the same length, type and op.
//
// Buffers: recv is as long as send. Passing the same slice as send and recv works in place; other
// overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Allreduce[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.Allreduce)
	if err != nil {
		return err
	}
	setAllreduce(c, call, send, recv, op)
	return c.run(call)
}

// Iallreduce starts an [Allreduce] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Allreduce]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Allreduce] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed]
// and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iallreduce[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setAllreduce(c, call, send, recv, op)
	return c.start(call)
}

// AllreduceInit prepares an [Allreduce] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Allreduce]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Allreduce]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Allreduce], in the call and in [Persistent.Wait].
func AllreduceInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	call := newCall()
	setAllreduce(c, call, send, recv, op)
	return c.persist(call)
}

func setAllreduce[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op) {
	setReduction(c, call, backend.Allreduce, send, recv, op, -1)
	checkPair(call)
}
