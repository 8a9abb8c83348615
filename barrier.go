package cohort

import "github.com/cohort-hpc/cohort/backend"

// Barrier returns when every rank of the communicator has called it.
//
// Collective: all ranks of c call it.
func (c *Comm) Barrier() error { return c.run(c.begin(backend.Barrier, -1)) }

// Ibarrier is the nonblocking form of [Comm.Barrier].
func (c *Comm) Ibarrier() (*Request, error) { return c.start(newCall(backend.Barrier, -1)) }

// BarrierInit is the persistent form of [Comm.Barrier].
func (c *Comm) BarrierInit() (*Persistent, error) { return c.persist(newCall(backend.Barrier, -1)) }
