//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"golang.org/x/sys/unix"
)

// reach is how far behind its beginning a receive that is not guarded may write:
// address space that takes no memory until it is written.
const reach = 1 << 36

// surrender gives the guarded receives that wait to MPI, because nobody will be
// there to match them: the one thread that may call is about to wait in a call of
// the library's. They arrive in memory of their own, with room behind it.
func (e *engine) surrender() {
	e.mu.Lock()
	comms := e.comms
	e.mu.Unlock()
	for _, c := range comms {
		for i := range c.queues {
			q := &c.queues[i]
			q.mu.Lock()
			ops := q.ops
			q.ops = nil
			c.queued(-len(ops))
			q.mu.Unlock()
			for _, o := range ops {
				o.queued = false
				c.receiveAway(q, o)
			}
		}
	}
}

func (c *comm) receiveAway(q *queue, o *op) {
	if len(o.buf)+selfBytes > reach {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrCount, Text: "a receive of this length cannot be guarded at this thread level"})
		return
	}
	away, err := unix.Mmap(-1, 0, reach, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrAlloc, Text: "address space for a receive: " + err.Error()})
		return
	}
	o.away = away
	var st libmpi.Status
	// More is received than was asked for: Open MPI does not tell of a short message
	// of a rank to itself that was too long.
	code := q.on.Irecv(away[:len(o.buf)+selfBytes], o.source, o.tag, &o.h, &st)
	c.started(o, code, &st)
}

// home brings what has arrived away to its buffer. bytes is how much that is.
func (o *op) home(bytes int) {
	copy(o.buf, o.away[:min(bytes, len(o.buf))])
	unix.Munmap(o.away)
	o.away = nil
}
