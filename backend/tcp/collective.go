package tcp

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// Collectives are schedules over messages: this backend does not implement backend.Native. It adds two
// things. The two messages of a round of the check start under one lock. And the message to be sent
// waits for the data that mostly follow it, so that two frames to one rank take one system call at each
// end.

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
	if !e.cork(o, out, c.World[dest], int32(tag)) {
		e.send(o, out, c.World[dest], int32(tag), backend.Standard)
	}
	e.release(false) // Flush follows
}

// corkMax is how many bytes of frames a link keeps back.
const corkMax = 1 << 10

// cork keeps a short message back. It reports false if it cannot; then the caller sends it.
func (e *engine) cork(o *op, buf []byte, to int, tag int32) bool {
	l := e.links[to]
	if l == nil || l.first != nil || l.said || l.fd < 0 || l.fresh || l.broken != nil || o.comm.usable() != nil ||
		o.comm.gone[o.comm.RankOf(to)].Load() || len(l.corked)+wire.HeaderSize+len(buf) > corkMax {
		return false
	}
	if len(l.corked) == 0 {
		e.corks = append(e.corks, l)
	}
	l.encode(&wire.Header{Kind: wire.Eager, Context: o.comm.id, Tag: tag, Length: uint64(len(buf))}, buf)
	l.corked = append(append(l.corked, l.whead[:]...), buf...)
	e.finish(o, backend.Status{}, nil) // it is copied
	return true
}

// uncork sends what was kept back. The lock is held.
func (e *engine) uncork() {
	for i, l := range e.corks {
		if l.first == nil && len(l.corked) > 0 {
			l.flush()
		}
		e.corks[i] = nil
	}
	e.corks = e.corks[:0]
}

// Flush implements backend.Flusher.
func (c *comm) Flush() {
	e := c.e
	e.mu.Lock()
	if len(e.corks) > 0 {
		e.uncork()
	}
	e.unlock()
}
