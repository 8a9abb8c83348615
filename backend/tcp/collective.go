package tcp

import "github.com/cohort-hpc/cohort/backend"

// Collectives are schedules over messages: this backend is no backend.Native. What it adds is that
// the two messages of a round of the check start under one lock.

// Exchange implements backend.Exchanger.
func (c *comm) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	if err := c.usable(); err != nil {
		recv.Complete(backend.Status{}, err)
		send.Complete(backend.Status{}, err)
		return
	}
	e := c.e
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req = c, recv
	recv.Impl = o
	e.recv(o, in, c.pattern(source, tag))
	o = e.getOp()
	o.comm, o.req = c, send
	send.Impl = o
	e.send(o, out, c.world[dest], int32(tag), backend.Standard)
	e.unlock()
}
