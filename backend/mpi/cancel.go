//go:build cgo && linux

package mpi

import (
	"runtime"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// This file ends requests that the library has not completed: Cancel, giveUp when a wait is over, and drop when a
// communicator ends. MPI can cancel a receive but no send, and may go on to use the buffer of either.
//
// Shared words: the fate of an operation, its request, and canceled, why and until. While the operation is in engine.ops,
// only a goroutine with the engine's lock writes them, and only functions of this file do.
//
// Invariant: a request ends once, because only the goroutine that detaches it from its operation, or takes the operation out
// of its place, completes it. A receive that drop ends keeps its buffer until the library has withdrawn it, or for
// transferTime.

// fate says what becomes of an operation that MPI has.
//
//	from               event                                        to
//	awaited            drop: the communicator of a receive ends     dropped
//	awaited            drop: that of another operation ends         orphaned
//	awaited, dropped   giveUp: the time of its wait is up           orphaned
//	dropped            overdue: its message has not come in time    orphaned
type fate byte

const (
	awaited  fate = iota // by its request, if it has one
	dropped              // it ends with why unless its message arrives until then
	orphaned             // its request was taken away
	unwanted             // it receives a message that nobody wants, or one of cohort's own
)

// Cancel implements backend.Comm. MPI can cancel receives, not sends.
func (c *comm) Cancel(r *backend.Request) bool {
	o, ok := r.Impl.(*op)
	if !ok || r.Ready() {
		return false
	}
	if o.receives && c.p.lib.guard && c.unqueue(o) {
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

// endedRequest is a request and the error that it ends with.
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
