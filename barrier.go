package cohort

import "github.com/cohort-hpc/cohort/backend"

// Barrier returns when every rank of the communicator has called it.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if the ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func (c *Comm) Barrier() error {
	call, err := c.begin(backend.Barrier)
	if err != nil {
		return err
	}
	call.Coll = backend.Barrier
	return c.run(call)
}

// Ibarrier starts a [Comm.Barrier] and returns without waiting.
//
// Collective: all ranks of c call it, in the same order as their other collectives on c.
//
// Errors: those of [Comm.Barrier] come from [Request.Wait]. The call returns [ErrComm], [ErrClosed]
// and [ErrBusy]; on mpi it may return others.
//
// Deadline: Wait or Test returns [ErrTimeout], and the communicator is broken; see [Request.Wait].
func (c *Comm) Ibarrier() (*Request, error) {
	call := newCall()
	call.Coll = backend.Barrier
	return c.start(call)
}

// BarrierInit prepares a [Comm.Barrier] that can be started any number of times. It waits until all
// ranks have called it.
//
// Collective: all ranks of c call it, and all start the operation equally often.
//
// Errors: the call returns those of [Comm.Barrier]. [Persistent.Wait] returns the failure of a
// started operation.
//
// Deadline: as for [Comm.Barrier], in the call and in [Persistent.Wait].
func (c *Comm) BarrierInit() (*Persistent, error) {
	call := newCall()
	call.Coll = backend.Barrier
	return c.persist(call)
}
