package local

import (
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/word"
)

// op is one operation or message: a posted receive, a send that waits for its receive,
// or the copy of a short message. It is in at most one queue, and the goroutine that
// takes it out of the queue completes it.
type op struct {
	node   match.Node
	c      *Comm  // the end that waits for it; nil for a copy
	at     *rank  // the rank whose queues it goes to
	buf    []byte // to receive into, or the message
	send   bool   // a message, not a receive
	copied bool   // the message is a copy: no sender waits for it
	gone   bool   // Mprobe had taken the message, and its sender has withdrawn it; at.mu guards it
	swept  bool   // it has left its queue with an error; at.mu guards it
	store  []byte // memory for copies

	req    *backend.Request // nil: a goroutine waits in finish
	status backend.Status
	err    error
	done   word.Bool // status and err are final

	next *op // in rank.free

	_ [32]byte // no two operations share a cache line
}

var ops = sync.Pool{New: func() any {
	o := new(op)
	o.node.Owner = o
	return o
}}

// op returns a record for an operation of c that a goroutine will wait for.
func (c *Comm) op(buf []byte) *op {
	o := c.spare.Swap(nil)
	if o == nil {
		o = ops.Get().(*op)
	}
	o.c, o.buf, o.swept = c, buf, false
	o.done.Store(false)
	return o
}

// release gives back a record of op.
func (c *Comm) release(o *op) {
	o.buf, o.err = nil, nil
	if !c.spare.CompareAndSwap(nil, o) {
		o.c = nil
		ops.Put(o)
	}
}

// request returns the record of a request, which it keeps for its next use.
func (c *Comm) request(r *backend.Request, buf []byte) *op {
	o, ok := r.Impl.(*op)
	if !ok || o.send && o.err != nil { // Mprobe may have given a message that failed to the receiver
		o = ops.Get().(*op)
		r.Impl = o
	}
	o.c, o.buf, o.req = c, buf, r
	return o
}

// owner returns the record that n is part of.
func owner(n *match.Node) *op { return n.Owner.(*op) }

// complete ends the operation. No lock may be held, and o is not touched after
// it: its owner may be using it again.
func (o *op) complete(st backend.Status, err error) {
	me, req := o.c.me, o.req
	o.buf, o.status, o.err = nil, st, err
	switch {
	case req == nil:
		o.done.Store(true)
	case req.Notify != nil:
		me.notify(o)
		return
	default:
		o.req = nil
		req.Finish(st, err)
	}
	me.crew.Ask()
}

// finish waits until o, which has no request, is complete, and releases it.
func (c *Comm) finish(b *backend.Bound, o *op) (backend.Status, error) {
	for look := c.group.job.patience(); !o.done.Load() && look.more(); {
	}
	if err := c.Await(b, o); err != nil {
		if o.withdraw() {
			return backend.Status{}, o.explain(err) // Imrecv may still be given o
		}
		late := c.Await(&backend.Bound{Timeout: grace}, o)
		if late != nil && o.isSwept() {
			late = c.Await(nil, o) // another goroutine is about to complete it
		}
		if late != nil { // another goroutine copies the message, and keeps o
			c.Break(err)
			return backend.Status{}, err
		}
	}
	st, err := o.status, o.err
	if err == nil || !o.send {
		c.release(o)
	}
	return st, err
}

// Ready implements backend.Pending, for an operation without a request.
func (o *op) Ready() bool { return o.done.Load() }

// isSwept reports whether o has left its queue with an error.
func (o *op) isSwept() bool {
	if o.at == nil {
		return false
	}
	o.at.mu.Lock()
	defer o.at.mu.Unlock()
	return o.swept
}

// withdraw takes o out of its queue. If it returns false, o is complete or soon will be.
func (o *op) withdraw() bool {
	if o.at == nil {
		return false // it was never queued
	}
	o.at.mu.Lock()
	defer o.at.mu.Unlock()
	if o.send {
		taken := o.at.held.Remove(&o.node)
		o.gone = o.gone || taken
		return taken || o.at.arrived.Remove(&o.node)
	}
	return o.at.posted.Remove(&o.node)
}

// notices are the completed operations of a rank whose Notify is still to be called.
// One goroutine at a time calls them, so that a Notify that starts the next operation
// does not make the stack grow with every step.
type notices struct {
	mu        word.Mutex // guards the fields below
	list      []*op
	notifying bool
}

// notify completes o's request, or leaves that to the goroutine that calls Notify now.
func (r *rank) notify(o *op) {
	q := &r.notices
	q.mu.Lock()
	if q.list = append(q.list, o); q.notifying {
		q.mu.Unlock()
		return
	}
	q.notifying = true
	for i := 0; i < len(q.list); i++ {
		o := q.list[i]
		q.mu.Unlock()
		req := o.req
		o.req = nil
		req.Complete(o.status, o.err)
		r.crew.Ask()
		q.mu.Lock()
	}
	clear(q.list)
	q.list, q.notifying = q.list[:0], false
	q.mu.Unlock() // not deferred: a panic of Complete finds it unlocked
}
