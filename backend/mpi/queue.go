//go:build cgo && linux

package mpi

import (
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// queue has the guarded receives of one of MPI's communicators that have not
// matched, in the order they were posted.
type queue struct {
	on  libmpi.Comm
	mu  sync.Mutex
	ops []*op
}

// post queues a receive and looks at once whether its message is there.
func (c *comm) post(o *op) {
	q := c.queueOf(o)
	q.mu.Lock()
	o.queued = true
	q.ops = append(q.ops, o)
	c.queued(1)
	q.mu.Unlock()
	c.p.engine.mind()
	if err := c.usable(); err != nil { // broken in between: drop may have passed by
		c.drop(err)
		return
	}
	c.matchIn(q)
}

// queued counts receives that wait, of the communicator and of the process.
func (c *comm) queued(n int) {
	c.waiting.Add(int32(n))
	c.p.engine.queued.Add(int32(n))
}

func (c *comm) queueOf(o *op) *queue {
	if o.user >= 0 || o.user == backend.AnyTag {
		return &c.queues[0]
	}
	return &c.queues[1]
}

// match gives messages that have come to the receives that wait.
func (c *comm) match() {
	for i := range c.queues {
		c.matchIn(&c.queues[i])
	}
}

// found is a receive that has matched.
type found struct {
	o     *op
	m     libmpi.Message
	bytes int64
}

func (c *comm) matchIn(q *queue) {
	for {
		f, ok := c.matchOne(q)
		if !ok {
			return
		}
		c.receive(f.o, f.m, f.bytes)
	}
}

// matchOne takes one message and the receive it belongs to out of the queues: the
// first that was posted of those it fits, which need not be the one that asked.
func (c *comm) matchOne(q *queue) (found, bool) {
	if !q.mu.TryLock() {
		return found{}, false // somebody else is at it
	}
	defer q.mu.Unlock()
	for i, o := range q.ops {
		if i > 0 && asked(q.ops[:i], o) {
			continue
		}
		var m libmpi.Message
		var st libmpi.Status
		if q.on.Mprobe(o.source, o.tag, false, &m, &st) != 0 || st.Flag == 0 {
			continue
		}
		for j, first := range q.ops {
			if (first.source == backend.AnySource || first.source == int(st.Source)) &&
				(first.tag == backend.AnyTag || first.tag == int(st.Tag)) {
				q.ops = slices.Delete(q.ops, j, j+1)
				c.queued(-1)
				first.queued = false
				return found{first, m, st.Bytes}, true
			}
		}
	}
	return found{}, false
}

// asked reports whether one of ops waits for the same messages as o, so that there
// are none.
func asked(ops []*op, o *op) bool {
	for _, p := range ops {
		if p.source == o.source && p.tag == o.tag {
			return true
		}
	}
	return false
}

// unqueue takes a receive out again. false: it is not there any more.
func (c *comm) unqueue(o *op) bool {
	q := c.queueOf(o)
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.ops, o)
	if i < 0 {
		return false
	}
	q.ops = slices.Delete(q.ops, i, i+1)
	c.queued(-1)
	o.queued = false
	return true
}

// Cancel implements backend.Comm. MPI can take receives back, not sends.
func (c *comm) Cancel(r *backend.Request) bool {
	o, ok := r.Impl.(*op)
	if !ok || r.Ready() || !o.receives {
		return false
	}
	if c.p.guard && c.unqueue(o) {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the request was canceled"})
		return true
	}
	c.p.engine.cancel(o)
	c.Poll()
	return r.Ready() && backend.Code(r.Err) == canceled
}

// cancel marks a request of MPI's. Its completion tells whether that came in time.
func (e *engine) cancel(o *op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.ops, o); i >= 0 {
		e.cancelAt(i)
	}
}

// cancelAt marks a request once: Open MPI does not survive a second time. The lock
// is held.
func (e *engine) cancelAt(i int) {
	if o := e.ops[i]; !o.canceled {
		o.canceled = true
		e.reqs[i].Cancel()
	}
}

// drop ends everything of the communicator's that is pending with an error.
// Requests that MPI still works on keep their buffers pinned until they are
// complete.
func (c *comm) drop(err error) {
	var ops []*op
	for i := range c.queues {
		q := &c.queues[i]
		q.mu.Lock()
		ops = append(ops, q.ops...)
		c.queued(-len(q.ops))
		q.ops = nil
		q.mu.Unlock()
	}
	for _, o := range ops {
		o.complete(backend.Status{}, err)
	}
	var told []*backend.Request
	var colls []*operation
	e := &c.p.engine
	e.mu.Lock()
	for i, o := range e.ops {
		if o.c != c {
			continue
		}
		if o.receives {
			e.cancelAt(i)
		}
		if o.req != nil {
			o.req.Impl = nil // the record stays with MPI's request
			told = append(told, o.req)
			o.req = nil
			c.leaked.Store(true)
		}
		if o.coll != nil && o.coll.abandon(err) {
			colls = append(colls, o.coll)
			c.leaked.Store(true)
		}
	}
	e.mu.Unlock()
	for _, r := range told {
		r.Complete(backend.Status{}, err)
	}
}

const (
	mindEvery = time.Millisecond
	mindFor   = 50 // rounds without a receive that waits
)

// mind makes sure that receives that wait are matched even if nobody waits for
// them: a program may have posted one and be in a blocking call of the library's,
// or somewhere else altogether, while the sender waits for the match.
func (e *engine) mind() {
	if e.minded && !e.minding.Swap(true) {
		go e.minder()
	}
}

func (e *engine) minder() {
	for idle := 0; idle < mindFor; idle++ {
		time.Sleep(mindEvery)
		if e.queued.Load() > 0 {
			e.poll(1)
			idle = 0
		}
		if e.closing.Load() {
			break
		}
	}
	e.minding.Store(false)
	if e.queued.Load() > 0 && !e.closing.Load() {
		e.mind()
	}
}
