//go:build cgo && linux

package mpi

import (
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// Guarded receives (see the package's documentation) wait here for their messages. Each communicator has two queues, for data
// and for ctl. A goroutine that posts a receive, probes or polls may match any of them.
//
//	shared words    written by
//	queue.ops       under queue.mu: post appends a receive; matchAt, unqueue and drop remove receives
//	queue.asked     under queue.mu: the passes of matchOne
//	engine.queued   with each change of ops: the number of receives in all queues
//
// Invariant: a message goes to the receive that was posted first of those that it matches. So the library's message is taken
// only for a receive behind no other one that it matches, and the goroutine that removes a receive from its queue goes on
// with it alone.

// queue has the receives of one of MPI's communicators, in the order they were posted.
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
