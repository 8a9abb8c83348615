package cohort

import "github.com/cohort-hpc/cohort/backend"

// Scan combines the send of ranks 0 to r element by element with op, in rank order, and stores the
// result in rank r's recv (inclusive prefix reduction).
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
func Scan[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.Scan)
	if err != nil {
		return err
	}
	setScan(c, call, send, recv, op)
	return c.run(call)
}

// Iscan starts a [Scan] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Scan]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Scan] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iscan[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setScan(c, call, send, recv, op)
	return c.start(call)
}

// ScanInit prepares a [Scan] that can be started any number of times. It waits until all ranks have
// called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Scan]. Each Start uses the current contents; the slices belong to the operation
// until it is complete.
//
// Errors: the call returns those of [Scan]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Scan], in the call and in [Persistent.Wait].
func ScanInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	call := newCall()
	setScan(c, call, send, recv, op)
	return c.persist(call)
}

func setScan[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op) {
	setReduction(c, call, backend.Scan, send, recv, op, -1)
	checkPair(call)
}

// Exscan combines the send of ranks 0 to r-1 element by element with op, in rank order, and stores
// the result in rank r's recv (exclusive prefix reduction). Rank 0's recv is not changed.
//
// Collective: all ranks of c call it, with the same length, type and op.
//
// Buffers: recv is as long as send; on rank 0 it may be nil. Passing the same slice as send and
// recv works in place; other overlaps are [ErrBuffer].
//
// Errors: [ErrOp], [ErrCount], [ErrBuffer] and [ErrType] for wrong arguments; [ErrMismatch] on
// every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func Exscan[T Reducible](c *Comm, send, recv []T, op Op) error {
	call, err := c.begin(backend.Exscan)
	if err != nil {
		return err
	}
	setExscan(c, call, send, recv, op)
	return c.run(call)
}

// Iexscan starts an [Exscan] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Buffers: as for [Exscan]. The slices belong to the operation until the request is complete.
//
// Errors: those of [Exscan] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed] and
// [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func Iexscan[T Reducible](c *Comm, send, recv []T, op Op) (*Request, error) {
	call := newCall()
	setExscan(c, call, send, recv, op)
	return c.start(call)
}

// ExscanInit prepares an [Exscan] that can be started any number of times. It waits until all ranks
// have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Buffers: as for [Exscan]. Each Start uses the current contents; the slices belong to the
// operation until it is complete.
//
// Errors: the call returns those of [Exscan]. [Persistent.Wait] returns the failure of a started
// operation.
//
// Deadline: as for [Exscan], in the call and in [Persistent.Wait].
func ExscanInit[T Reducible](c *Comm, send, recv []T, op Op) (*Persistent, error) {
	call := newCall()
	setExscan(c, call, send, recv, op)
	return c.persist(call)
}

func setExscan[T Reducible](c *Comm, call *backend.Call, send, recv []T, op Op) {
	setReduction(c, call, backend.Exscan, send, recv, op, -1)
	if recv == nil && c.Rank() == 0 {
		return
	}
	checkPair(call)
}
