package cohort

import "github.com/cohort-hpc/cohort/backend"

// Barrier returns when every rank of the communicator has called it.
//
// Collective: all ranks of c call it.
//
// Errors: [ErrMismatch] on every rank if another rank calls another collective.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func (c *Comm) Barrier() error {
	call, err := c.begin(backend.Barrier)
	if err != nil {
		return err
	}
	call.Coll = backend.Barrier
	return c.run(call)
}

// Ibarrier starts a [Comm.Barrier]: the request completes when every rank has
// called Ibarrier.
//
// Collective: all ranks of c call it, in the same order as their other
// collectives on c.
func (c *Comm) Ibarrier() (*Request, error) {
	call := newCall()
	call.Coll = backend.Barrier
	return c.start(call)
}

// BarrierInit prepares a [Comm.Barrier] that can be started any number of times.
//
// Collective: all ranks of c call it, and all start it equally often.
func (c *Comm) BarrierInit() (*Persistent, error) {
	call := newCall()
	call.Coll = backend.Barrier
	return c.persist(call)
}
