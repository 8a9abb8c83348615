//go:build cgo && linux

package mpi

import (
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// queue holds the guarded receives of one MPI communicator that have not matched, in the order they
// were posted.
type queue struct {
	on    libmpi.Comm
	mu    sync.Mutex
	ops   []*op
	asked map[envelope]struct{} // what a pass has looked for without success
}

// envelope is the source and tag that a receive waits for.
type envelope struct{ source, tag int }

func (o *op) envelope() envelope { return envelope{o.source, o.tag} }

// first returns the index of the receive that a message belongs to: the first posted of those that
// it matches, -1 if there is none.
func (q *queue) first(st *libmpi.Status) int {
	for i, o := range q.ops {
		if (o.source == backend.AnySource || o.source == int(st.Source)) && (o.tag == backend.AnyTag || o.tag == int(st.Tag)) {
			return i
		}
	}
	return -1
}

// post queues a receive and checks at once whether its message has arrived.
func (c *comm) post(o *op) {
	q := c.queueOf(o)
	q.mu.Lock()
	o.queued = true
	q.ops = append(q.ops, o)
	c.p.engine.queued.Add(1)
	f, ok := c.matchAt(q, len(q.ops)-1)
	q.mu.Unlock()
	if ok {
		c.receive(f.o, f.m, f.bytes)
	}
	c.p.engine.matchInBackground()
	if err := c.usable(); err != nil { // broken meanwhile: drop may have missed it
		c.drop(err)
	}
}

func (c *comm) queueOf(o *op) *queue { return c.queueFor(o.user) }

func (c *comm) queueFor(tag int) *queue {
	if tag >= 0 || tag == backend.AnyTag {
		return &c.queues[0]
	}
	return &c.queues[1]
}

// match hands messages that have arrived to the receives that wait.
func (c *comm) match() {
	if c.enter() != nil {
		return // the caller that closed or broke it ends them
	}
	defer c.leave()
	for i := range c.queues {
		c.matchIn(&c.queues[i])
	}
}

// found is a receive and the message it has matched.
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

// matchOne takes one message and its receive out of the queues. A pass over the receives starts
// with *from 0 and continues there.
func (c *comm) matchOne(q *queue, from *int) (found, bool) {
	if !q.mu.TryLock() {
		return found{}, false // another goroutine matches
	}
	defer q.mu.Unlock()
	if len(q.ops) == 0 {
		return found{}, false
	}
	if *from == 0 {
		clear(q.asked)
		if len(q.ops) > 1 {
			// One probe shows whether there is any message.
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
			*from = max(*from-1, 0) // one of those up to here was removed
			return f, true
		}
		if q.asked == nil {
			q.asked = make(map[envelope]struct{})
		}
		q.asked[want] = struct{}{}
	}
	return found{}, false
}

// matchAt looks for a message for the receive at an index. If there is one, it takes the message
// out of the library's queue, and the receive that the message belongs to out of its own. The lock
// is held.
//
// A message may have arrived after the earlier receives were checked, and may belong to one of
// them. Earlier messages of the same sender may then belong to that receive too. So matchAt only
// probes here, and then checks the receive that the message belongs to, which gets its first
// message. It takes a message only once no earlier receive matches it.
func (c *comm) matchAt(q *queue, at int) (found, bool) {
	source := q.ops[at].source
	var st libmpi.Status
	for at > 0 {
		if q.on.Probe(q.ops[at].source, q.ops[at].tag, false, &st) != 0 || st.Flag == 0 {
			return found{}, false
		}
		source = int(st.Source) // the next probe of any source may find another
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
	// It differs only if a blocking receive of another goroutine was faster.
	at = q.first(&st)
	o := q.ops[at]
	q.ops = slices.Delete(q.ops, at, at+1)
	delete(q.asked, o.envelope())
	c.p.engine.queued.Add(-1)
	o.queued = false
	return found{o, m, st.Bytes}, true
}

// unqueue removes a receive from its queue. It returns false if the receive is no longer there.
func (c *comm) unqueue(o *op) bool {
	q := c.queueOf(o)
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.ops, o)
	if i < 0 {
		return false
	}
	q.ops = slices.Delete(q.ops, i, i+1)
	c.p.engine.queued.Add(-1)
	o.queued = false
	return true
}

// Cancel implements backend.Comm. MPI can cancel receives, not sends.
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

// cancel cancels a request of MPI. Its completion shows whether that came in time.
func (e *engine) cancel(o *op) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.ops, o); i >= 0 {
		e.cancelAt(i)
	}
}

// cancelAt cancels a request once: Open MPI does not survive a second time. The lock is held.
func (e *engine) cancelAt(i int) {
	if o := e.ops[i]; !o.canceled && !e.closing.Load() {
		o.canceled = true
		e.reqs[i].Cancel()
	}
}

// drop ends all pending operations of the communicator with an error. Requests that MPI still works
// on keep their buffers pinned until they are complete.
func (c *comm) drop(err error) {
	var ops []*op
	for i := range c.queues {
		q := &c.queues[i]
		q.mu.Lock()
		ops = append(ops, q.ops...)
		c.p.engine.queued.Add(-int32(len(q.ops)))
		q.ops = nil
		q.mu.Unlock()
	}
	for _, o := range ops {
		o.complete(backend.Status{}, err)
	}
	var ended []*backend.Request
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
			o.req.Impl = nil // MPI's request keeps the record
			ended = append(ended, o.req)
			o.req = nil
			o.uncount()
			c.leaked.Store(true)
		}
		if !o.receives && o.coll == nil {
			c.leaked.Store(true) // it may still be received
		}
		if o.coll != nil && o.coll.abandon(err) {
			c.leaked.Store(true)
		}
	}
	e.mu.Unlock()
	for _, r := range ended {
		r.Complete(backend.Status{}, err)
	}
}

const (
	matchEvery = time.Millisecond
	matchIdle  = 50 // rounds without a waiting receive before the goroutine ends
)

// matchInBackground makes sure that waiting receives are matched even if nobody waits for them: a
// program may have posted one and be in a blocking call, or computing, while the sender waits.
func (e *engine) matchInBackground() {
	if e.background && !e.matching.Swap(true) {
		go e.matchLoop()
	}
}

func (e *engine) matchLoop() {
	for idle := 0; idle < matchIdle; idle++ {
		time.Sleep(matchEvery)
		if e.queued.Load() > 0 {
			e.poll(1)
			idle = 0
		}
		if e.closing.Load() {
			break
		}
	}
	e.matching.Store(false)
	if e.queued.Load() > 0 && !e.closing.Load() {
		e.matchInBackground()
	}
}
