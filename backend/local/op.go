package local

import (
	"sync"
	"time"

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
	store  []byte // memory for copies

	req    *backend.Request // nil: a goroutine waits in finish
	status backend.Status
	err    error
	state  word.Uint32
	sleeper

	next *op // in whatever list it is in
}

const (
	opPending uint32 = iota
	opParked         // its goroutine waits for a token
	opDone
)

var ops = sync.Pool{New: func() any {
	o := new(op)
	o.node.Owner = o
	o.Parker = word.NewParker()
	return o
}}

// op returns a record for an operation of c that a goroutine will wait for.
func (c *Comm) op(buf []byte) *op {
	o := c.spare.Swap(nil)
	if o == nil {
		o = ops.Get().(*op)
	}
	o.c, o.buf = c, buf
	o.state.Store(opPending)
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
	if !ok {
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
	o.buf = nil
	if o.req == nil {
		o.status, o.err = st, err
		if o.state.Swap(opDone) == opParked {
			o.Unpark() // an extra token does no harm
		}
		return
	}
	me, req := o.c.me, o.req
	if req.Notify != nil {
		o.status, o.err = st, err
		me.notify(o)
		return
	}
	o.req = nil
	req.Finish(st, err)
	me.sleepers.completed()
}

// finish waits until o, which has no request, is complete, and releases it.
func (c *Comm) finish(b *backend.Bound, o *op) (backend.Status, error) {
	for look := c.group.job.patience(); o.state.Load() != opDone && look.more(); {
	}
	var ended error
	if o.state.CompareAndSwap(opPending, opParked) {
		ended = c.park(b, o)
	}
	if ended != nil {
		return backend.Status{}, ended // Imrecv may still be given o
	}
	st, err := o.status, o.err
	c.release(o)
	return st, err
}

// park waits on a parked o. It returns b's error if it could withdraw o.
func (c *Comm) park(b *backend.Bound, o *op) error {
	c.me.waits()
	err := c.me.sleep(b, began(b), &o.sleeper, o)
	if err == nil {
		return nil
	}
	if o.withdraw(true) {
		return o.explain(err)
	}
	return c.me.sleep(nil, time.Time{}, &o.sleeper, o) // another goroutine is completing it
}

// Ready implements backend.Pending, for an operation without a request.
func (o *op) Ready() bool { return o.state.Load() == opDone }

// withdraw takes o out of its queue. If it returns false, o is complete or soon will be; or it is a message that
// Mprobe has taken, which only a sender that cannot wait any longer takes back.
func (o *op) withdraw(late bool) bool {
	if o.at == nil {
		return false // it was never queued
	}
	o.at.mu.Lock()
	defer o.at.mu.Unlock()
	if o.send {
		return o.at.arrived.Remove(&o.node) || late && o.at.held.Remove(&o.node)
	}
	return o.at.posted.Remove(&o.node)
}

// notices are the completed operations of a rank whose Notify is still to be called.
// One goroutine at a time calls them, so that a Notify that starts the next operation
// does not make the stack grow with every step.
type notices struct {
	mu          word.Mutex // guards the fields below
	first, last *op
	notifying   bool
}

// notify completes o's request, or leaves that to the goroutine that calls Notify now.
// Without an o it completes those that a goroutine which panicked has left.
func (r *rank) notify(o *op) {
	q := &r.notices
	q.mu.Lock()
	if o != nil {
		o.next = nil
		if q.last == nil {
			q.first = o
		} else {
			q.last.next = o
		}
		q.last = o
	}
	if q.notifying {
		q.mu.Unlock()
		return
	}
	q.notifying = true
	panicked := true
	defer func() {
		if panicked { // the next notify goes on with the others
			q.mu.Lock()
			q.notifying = false
			q.mu.Unlock()
			r.sleepers.completed()
		}
	}()
	for q.first != nil {
		o := q.first
		if q.first = o.next; q.first == nil {
			q.last = nil
		}
		q.mu.Unlock()
		req := o.req
		o.req, o.next = nil, nil
		req.Complete(o.status, o.err)
		r.sleepers.completed()
		q.mu.Lock()
	}
	q.notifying, panicked = false, false
	q.mu.Unlock()
}
