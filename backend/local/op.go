package local

import (
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/word"
)

// op is one operation or message: a posted receive, a send that waits for its receive,
// or the copy of a short message.
//
// Invariant: an operation that has begun is in one queue, or is complete, or has matched. A cancel, a deadline or the end
// of its communicator takes it out of the queue and completes it in one step under the queue's lock. A goroutine that
// matches it copies the message afterwards, and then completes it: those that give it up wait for that, but not for a long
// message. A request with a Notify, which nobody gives up alone, completes when Notify is called.
type op struct {
	node   match.Node
	c      *Comm  // the end that waits for it; nil for a copy
	at     *rank  // the rank whose queues it goes to
	buf    []byte // to receive into, or the message
	send   bool   // a message, not a receive
	copied bool   // the message is a copy: no sender waits for it
	gone   bool   // Mprobe had taken the message, and its sender has withdrawn it; at.mu guards it
	long   bool   // it has matched, and its message is long; written under at.mu when it leaves its queue
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
	o.c, o.buf = c, buf
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
	me := o.c.me
	me.tell(o.settle(st, err))
}

// settle completes the operation, and does not touch o afterwards, but leaves a request with a Notify to tell. The caller
// calls tell with what settle returns when it holds no lock.
func (o *op) settle(st backend.Status, err error) (later *op) {
	req := o.req
	o.buf, o.status, o.err = nil, st, err
	switch {
	case req == nil:
		o.done.Store(true)
	case req.Notify != nil:
		return o
	default:
		o.req = nil
		word.Storing(req)
		req.Finish(st, err)
	}
	return nil
}

// finish waits until o, which has no request, is complete, and releases it.
func (c *Comm) finish(b *backend.Bound, o *op) (backend.Status, error) {
	for look := c.group.job.patience(); !o.done.Load() && look.more(); c.me.receive() {
	}
	if err := c.Await(b, o); err != nil {
		if o.withdraw(err) {
			return backend.Status{}, o.explain(err) // Imrecv may still be given o
		}
		var left *backend.Bound
		if o.long {
			left = &backend.Bound{Timeout: grace}
		}
		if c.Await(left, o) != nil { // another goroutine copies the message, and keeps o
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

// withdraw takes o out of its queue, and completes it with err. If it returns false, o has matched, or is complete.
func (o *op) withdraw(err error) bool {
	at, me := o.at, o.c.me
	if at == nil {
		return false // it was never queued
	}
	at.lock()
	taken := o.send && at.held.Remove(&o.node)
	o.gone = o.gone || taken
	if !taken && !at.arrived.Remove(&o.node) && !at.posted.Remove(&o.node) {
		at.mu.Unlock()
		return false
	}
	later := o.settle(backend.Status{}, err)
	at.mu.Unlock()
	me.tell(later)
	return true
}

// notices are the completed operations of a rank whose Notify is still to be called.
// One goroutine at a time calls them, so that a Notify that starts the next operation
// does not make the stack grow with every step.
type notices struct {
	mu        word.Mutex // guards the fields below
	list      []*op
	notifying bool
}

// tell wakes the goroutines whose operations have settled. If later is not nil, it first completes that operation's
// request, or leaves both to the goroutine that calls Notify now.
func (r *rank) tell(later *op) {
	if later == nil {
		r.crew.Ask()
		return
	}
	q := &r.notices
	q.mu.Lock()
	if q.list = append(q.list, later); q.notifying {
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
