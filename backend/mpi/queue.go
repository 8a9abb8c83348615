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
	on    libmpi.Comm
	mu    sync.Mutex
	ops   []*op
	asked map[envelope]struct{} // what has been looked for in vain in one pass
}

// envelope is what a receive waits for.
type envelope struct{ source, tag int }

func (o *op) envelope() envelope { return envelope{o.source, o.tag} }

// first returns the place of the receive that a message belongs to: the first that
// was posted of those it fits, -1 if it fits none.
func (q *queue) first(st *libmpi.Status) int {
	for i, o := range q.ops {
		if (o.source == backend.AnySource || o.source == int(st.Source)) && (o.tag == backend.AnyTag || o.tag == int(st.Tag)) {
			return i
		}
	}
	return -1
}

// post queues a receive and looks at once whether its message is there.
func (c *comm) post(o *op) {
	q := c.queueOf(o)
	q.mu.Lock()
	o.queued = true
	q.ops = append(q.ops, o)
	c.queued(1)
	f, ok := c.matchAt(q, len(q.ops)-1)
	q.mu.Unlock()
	if ok {
		c.receive(f.o, f.m, f.bytes)
	}
	c.p.engine.mind()
	if err := c.usable(); err != nil { // broken in between: drop may have passed by
		c.drop(err)
	}
}

// queued counts receives that wait, of the communicator and of the process.
func (c *comm) queued(n int) {
	c.waiting.Add(int32(n))
	c.p.engine.queued.Add(int32(n))
}

func (c *comm) queueOf(o *op) *queue { return c.queueFor(o.user) }

func (c *comm) queueFor(tag int) *queue {
	if tag >= 0 || tag == backend.AnyTag {
		return &c.queues[0]
	}
	return &c.queues[1]
}

// match gives messages that have come to the receives that wait.
func (c *comm) match() {
	if c.enter() != nil {
		return // who made it so has ended them, or is about to
	}
	defer c.leave()
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
	for from := 0; ; {
		f, ok := c.matchOne(q, &from)
		if !ok {
			return
		}
		c.receive(f.o, f.m, f.bytes)
	}
}

// matchOne takes one message and the receive it belongs to out of the queues. A pass
// over the receives begins with *from 0 and goes on there.
func (c *comm) matchOne(q *queue, from *int) (found, bool) {
	if !q.mu.TryLock() {
		return found{}, false // somebody else is at it
	}
	defer q.mu.Unlock()
	if len(q.ops) == 0 {
		return found{}, false
	}
	if *from == 0 {
		clear(q.asked)
		if len(q.ops) > 1 {
			// One look tells that there is no message at all.
			var st libmpi.Status
			if q.on.Probe(backend.AnySource, backend.AnyTag, false, &st) != 0 || st.Flag == 0 {
				return found{}, false
			}
		}
	}
	for ; *from < len(q.ops); *from++ {
		want := q.ops[*from].envelope()
		if _, ok := q.asked[want]; ok {
			continue
		}
		if f, ok := c.matchAt(q, *from); ok {
			*from = max(*from-1, 0) // one of those up to here has gone
			return f, true
		}
		if q.asked == nil {
			q.asked = make(map[envelope]struct{})
		}
		q.asked[want] = struct{}{}
	}
	return found{}, false
}

// matchAt looks for a message for the receive at a place. If there is one, it takes
// the message out of the library's queue and, out of its own, the receive that the
// message belongs to. The lock is held.
//
// A message may have come since receives that were posted before were looked for,
// and belong to one of these, but before it others of the same sender may have come
// that do so too. So a message is only looked at here, and the receive that it
// belongs to is looked for next, which takes the first one for it. It is taken once
// it is known to belong to nobody before.
func (c *comm) matchAt(q *queue, at int) (found, bool) {
	source := q.ops[at].source
	var st libmpi.Status
	for at > 0 {
		if q.on.Probe(q.ops[at].source, q.ops[at].tag, false, &st) != 0 || st.Flag == 0 {
			return found{}, false
		}
		source = int(st.Source) // the next look at any source may find another's
		j := q.first(&st)
		if j == at {
			break
		}
		at, source = j, q.ops[j].source
	}
	var m libmpi.Message
	if q.on.Mprobe(source, q.ops[at].tag, false, &m, &st) != 0 || st.Flag == 0 {
		return found{}, false
	}
	// Not at itself only if another goroutine's blocking receive was faster.
	at = q.first(&st)
	o := q.ops[at]
	q.ops = slices.Delete(q.ops, at, at+1)
	delete(q.asked, o.envelope())
	c.queued(-1)
	o.queued = false
	return found{o, m, st.Bytes}, true
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
	if o := e.ops[i]; !o.canceled && !e.closing.Load() {
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
		if !o.receives && o.coll == nil {
			c.leaked.Store(true) // somebody may receive it yet
		}
		if o.coll != nil && o.coll.abandon(err) {
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
