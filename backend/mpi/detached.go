//go:build cgo && linux

package mpi

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"golang.org/x/sys/unix"
)

// reach is how far past its start an unguarded receive may write. It is address space, which takes
// no memory until it is written.
const reach = 1 << 36

// postGuarded posts the guarded receives to MPI, because nobody will match them: the only thread
// that may call is about to block in the library. They arrive in memory of their own, with room
// behind it.
func (e *engine) postGuarded() {
	e.mu.Lock()
	comms := e.comms
	e.mu.Unlock()
	for _, c := range comms {
		for i := range c.queues {
			q := &c.queues[i]
			q.mu.Lock()
			ops := q.ops
			q.ops = nil
			e.queued.Add(-int32(len(ops)))
			q.mu.Unlock()
			for _, o := range ops {
				o.queued = false
				c.postDetached(q, o)
			}
		}
	}
}

// postDetached posts a guarded receive into memory that has room for a message that is too long.
func (c *comm) postDetached(q *queue, o *op) {
	if len(o.buf)+selfBytes > reach {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrCount, Text: "a receive of this length cannot be guarded at this thread level"})
		return
	}
	detached, err := unix.Mmap(-1, 0, reach, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrAlloc, Text: "address space for a receive: " + err.Error()})
		return
	}
	o.detached = detached
	var st libmpi.Status
	// The receive is longer than asked for: Open MPI reports no error if a short message of a rank
	// to itself is too long.
	code := q.on.Irecv(detached[:len(o.buf)+selfBytes], o.source, o.tag, &o.h, &st)
	c.started(o, code, &st)
}

// copyBack copies what has arrived to the buffer and releases the memory.
func (o *op) copyBack(bytes int) {
	copy(o.buf, o.detached[:min(bytes, len(o.buf))])
	unix.Munmap(o.detached)
	o.detached = nil
}
