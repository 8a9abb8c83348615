//go:build cgo && linux

package mpi

import (
	"runtime"
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

// repeats reports whether a receive waits for the same messages as the one before.
func (q *queue) repeats(at int) bool { return at > 0 && q.ops[at-1].envelope() == q.ops[at].envelope() }

// contested reports whether a message that a receive matches may belong to one posted earlier.
func (q *queue) contested(at int) bool {
	o := q.ops[at]
	return at > contestants || slices.ContainsFunc(q.ops[:at], func(p *op) bool {
		return (p.source == o.source || p.source == backend.AnySource || o.source == backend.AnySource) &&
			(p.tag == o.tag || p.tag == backend.AnyTag || o.tag == backend.AnyTag)
	})
}

// contestants is how many earlier receives are looked at before one is taken to be contested.
const contestants = 64

// post queues a receive and checks at once whether its message has arrived.
func (c *comm) post(o *op) {
	q := c.queueOf(o)
	q.mu.Lock()
	at := len(q.ops)
	q.ops = append(q.ops, o)
	c.p.engine.queued.Add(1)
	var f found
	ok := false
	if !q.repeats(at) { // else the receive before comes first
		f, ok = c.matchAt(q, at)
	}
	q.mu.Unlock()
	if ok {
		c.goOn(&f)
	} else {
		c.looked(f.code)
	}
	c.p.engine.inBackground()
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
	st    libmpi.Status
	begun bool        // the library has m no more, because it receives the message
	code  libmpi.Code // of the last call
}

// goOn has a receive get its message.
func (c *comm) goOn(f *found) {
	if !f.begun {
		c.receive(f.o, f.m, f.st.Bytes)
		return
	}
	f.o.matched = true
	c.started(f.o, f.code, &f.st)
}

func (c *comm) matchIn(q *queue) {
	for from := 0; ; {
		f, ok := c.matchOne(q, &from)
		if !ok {
			c.looked(f.code)
			return
		}
		c.goOn(&f)
	}
}

// matchOne takes one message and its receive out of the queues. A pass over the receives starts
// with *from 0 and continues there.
func (c *comm) matchOne(q *queue, from *int) (f found, ok bool) {
	if !q.mu.TryLock() {
		return f, false // another goroutine matches
	}
	defer q.mu.Unlock()
	if len(q.ops) == 0 {
		return f, false
	}
	if *from == 0 {
		clear(q.asked)
		if last := len(q.ops) - 1; q.ops[0].envelope() != q.ops[last].envelope() {
			// One probe shows whether there is any message.
			if f.code = q.on.Iprobe(backend.AnySource, backend.AnyTag, &f.st); f.code != 0 || f.st.Flag == 0 {
				return f, false
			}
		}
	}
	for ; *from < len(q.ops); *from++ {
		if q.repeats(*from) {
			continue
		}
		want := q.ops[*from].envelope()
		if _, ok := q.asked[want]; ok {
			continue
		}
		if f, ok = c.matchAt(q, *from); ok {
			*from = max(*from-1, 0) // one of those up to here was removed
			return f, true
		} else if f.code != 0 {
			return f, false
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
// probes for a contested receive, and then checks the receive that the message belongs to, which gets
// its first message. It takes a message only once no earlier receive matches it. One call of the
// library takes the message of another receive and begins to receive it.
func (c *comm) matchAt(q *queue, at int) (f found, ok bool) {
	source, contested := q.ops[at].source, q.contested(at)
	for contested {
		if f.code = q.on.Iprobe(source, q.ops[at].tag, &f.st); f.code != 0 || f.st.Flag == 0 {
			return f, false
		}
		j := q.first(&f.st)
		if j == at {
			source = int(f.st.Source) // the next probe of any source may find another
			break
		}
		at, source, contested = j, q.ops[j].source, q.contested(j)
	}
	f.o = q.ops[at]
	if contested {
		if f.code = q.on.Improbe(source, f.o.tag, &f.m, &f.st); f.code != 0 || f.st.Flag == 0 {
			return f, false
		}
		at = q.first(&f.st) // it differs only if a blocking receive of another goroutine was faster
		f.o = q.ops[at]
	} else {
		if ok, f.code = q.on.Take(f.o.buf, source, f.o.tag, &f.m, &f.o.h, &f.st); !ok {
			return f, false
		}
		f.begun = f.st.Bytes <= int64(len(f.o.buf))
	}
	q.ops = slices.Delete(q.ops, at, at+1)
	delete(q.asked, f.o.envelope())
	c.p.engine.queued.Add(-1)
	c.gate.Count(-1)
	return f, true
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
	return true
}

// Cancel implements backend.Comm. MPI can cancel receives, not sends.
func (c *comm) Cancel(r *backend.Request) bool {
	o, ok := r.Impl.(*op)
	if !ok || r.Ready() {
		return false
	}
	if o.receives && c.p.guard && c.unqueue(o) {
		o.complete(backend.Status{}, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the request was canceled"})
		return true
	}
	c.p.engine.find(r, func(i int) {
		if o.receives {
			c.p.engine.cancelAt(i) // its completion shows whether that came in time
		}
	})
	c.Poll()
	return r.Ready() && backend.Code(r.Err) == canceled
}

// cancelAt cancels a request once: Open MPI does not survive a second time. The lock is held.
func (e *engine) cancelAt(i int) {
	if o := e.ops[i]; !o.canceled && !e.closing.Load() {
		o.canceled = e.reqs[i].Cancel() == 0
	}
}

// giveUp takes a request away from its operation, which the library goes on with, unless the request completes. It
// returns false if it has completed. The caller owns the request then.
func (e *engine) giveUp(r *backend.Request) bool {
	return e.find(r, func(i int) { e.detach(e.ops[i]) })
}

// find calls f with the place of a request in the lists, with the lock held, and returns true. The request is in no place
// while another goroutine starts or completes it: find waits for that, and returns false if the request has completed. It
// does not wait if the request has a Notify: the caller may be that goroutine.
func (e *engine) find(r *backend.Request, f func(i int)) bool {
	o, ok := r.Impl.(*op)
	for ok && !r.Ready() {
		e.mu.Lock()
		i := slices.Index(e.ops, o)
		found := i >= 0 && o.req == r
		if found {
			f(i)
		}
		e.mu.Unlock()
		if found || r.Notify != nil {
			return found
		}
		runtime.Gosched()
	}
	return false
}

// detach takes the request away from an operation that is in progress. The lock is held.
func (e *engine) detach(o *op) *backend.Request {
	r := o.req
	if o.fate == dropped {
		e.dropped--
	}
	o.req, o.fate = nil, orphaned // MPI's request keeps the record
	o.uncount()
	return r
}

// ended is a request and the error that it ends with.
type endedRequest struct {
	r   *backend.Request
	err error
}

func end(all []endedRequest) {
	for _, x := range all {
		x.r.Complete(backend.Status{}, x.err)
	}
}

// drop ends all pending operations of the communicator with an error. A receive ends once the library does not write
// to its buffer any more. Other requests end at once: MPI may still read their buffers, which stay pinned.
func (c *comm) drop(err error) {
	var ended []endedRequest
	for i := range c.queues {
		q := &c.queues[i]
		q.mu.Lock()
		ops := q.ops
		c.p.engine.queued.Add(-int32(len(ops)))
		q.ops = nil
		q.mu.Unlock()
		for _, o := range ops {
			o.complete(backend.Status{}, err)
		}
	}
	e := &c.p.engine
	e.mu.Lock()
	for i, o := range e.ops {
		switch {
		case o.c != c:
		case o.coll != nil:
			o.coll.abandon(err)
		case o.req == nil:
		case !o.receives, e.closing.Load(): // once the engine is closing, nobody polls any more
			ended = append(ended, endedRequest{e.detach(o), err})
		case o.fate == awaited:
			o.fate, o.why, o.until = dropped, err, time.Now().Add(transferTime(len(o.buf)))
			e.dropped++
			e.cancelAt(i)
		}
	}
	e.mu.Unlock()
	end(ended)
}

// overdue gives up the receives that drop has ended and that the library still has when their time is up. The lock is
// held. The zero time gives up all.
func (e *engine) overdue(now time.Time) (late []endedRequest) {
	for i, o := range e.ops {
		if o.fate != dropped {
			continue
		}
		e.cancelAt(i) // if drop ran on a thread that may not call
		if now.IsZero() || now.After(o.until) {
			late = append(late, endedRequest{e.detach(o), o.why})
		}
	}
	return late
}

const (
	pollEvery = time.Millisecond
	pollIdle  = 50 // rounds with nothing to do before the goroutine ends
)

// inBackground makes sure that what only poll advances (needsPoll) goes on even if nobody waits for it: the program may
// be in a blocking call, or computing, while another rank waits for its messages.
func (e *engine) inBackground() {
	if e.background && !e.polling.Load() && !e.polling.Swap(true) {
		go e.pollLoop()
	}
}

func (e *engine) pollLoop() {
	for idle := 0; idle < pollIdle; idle++ {
		time.Sleep(pollEvery)
		for e.needsPoll() && e.poll(1) {
		}
		if e.needsPoll() {
			idle = 0
		}
		if e.closing.Load() {
			break
		}
	}
	e.polling.Store(false)
	if e.needsPoll() && !e.closing.Load() {
		e.inBackground()
	}
}
