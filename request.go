package cohort

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Request is a nonblocking operation. Its buffers belong to the operation until Wait, Test, or one
// of the functions for several requests (WaitAll, WaitAny, WaitSome, TestAll, TestAny, TestSome)
// finds it complete.
//
// Several goroutines may wait for one Request. Every Wait returns the same status and error, also
// after the request is complete.
type Request struct {
	c    *Comm
	name string // of a point-to-point operation
	peer int
	tag  int
	coll backend.Coll // of a collective

	// The operation is pooled, so that starting one allocates little. users counts the goroutines
	// that use it. When the last of them takes the result, the operation returns to the pool, users
	// becomes released, and st and err keep the result.
	users atomic.Int32
	req   *backend.Request  // point to point
	op    backend.Operation // collective
	st    Status
	err   error

	ticket   flight.Ticket         // of its record
	begun    time.Time             // start of the operation's timeout; zero without one
	gone     atomic.Pointer[error] // why the operation was ended at its deadline
	reported atomic.Bool           // its completion has been returned to the user
}

const (
	releasing int32 = -1 // while finish stores the result
	released  int32 = -2
)

// hold keeps the operation out of the pool until drop or finish. It returns false if st and err
// already have the result. Methods marked "Held" are called in between.
func (q *Request) hold() bool {
	for {
		switch u := q.users.Load(); {
		case u == released:
			return false
		case u == releasing:
			runtime.Gosched()
		case q.users.CompareAndSwap(u, u+1):
			return true
		}
	}
}

func (q *Request) drop() { q.users.Add(-1) }

// finish ends a hold of a complete operation and returns its result.
func (q *Request) finish() (Status, error) {
	st, err := q.outcome()
	if !q.reported.Swap(true) {
		q.c.core.ended(q.ticket, err)
	}
	if !q.users.CompareAndSwap(1, releasing) {
		q.drop()
		return st, err
	}
	q.st, q.err = st, err
	if q.op != nil {
		q.op.Release()
		q.op = nil
	} else {
		q.c.core.job.requests.Put(q.req)
		q.req = nil
	}
	q.users.Store(released)
	return st, err
}

// complete reports whether the operation is complete. Held.
func (q *Request) complete() bool {
	if q.op != nil {
		return q.op.Ready()
	}
	return q.req.Ready()
}

// ready is complete for callers without a hold.
func (q *Request) ready() bool {
	if !q.hold() {
		return true
	}
	defer q.drop()
	return q.complete()
}

// outcome returns the result of a complete operation. Held.
func (q *Request) outcome() (Status, error) {
	if q.op != nil {
		if err := q.op.Err(); err != nil {
			return Status{}, q.failed(err)
		}
		return Status{}, nil
	}
	st, err := status(q.req.Status), q.req.Err
	if err == nil {
		return st, nil
	}
	if why := q.gone.Load(); why != nil && errors.Is(err, ErrCanceled) {
		err = *why
	}
	return st, q.failed(err)
}

func status(st backend.Status) Status { return Status{Source: st.Source, Tag: st.Tag, bytes: st.Bytes} }

func (q *Request) failed(err error) error {
	if q.coll != 0 {
		return q.c.failed(collName(q.coll, backend.Nonblocking), q.peer, Undefined, err)
	}
	return q.c.failed(q.name, q.peer, q.tag, err)
}

// Wait waits until the operation is complete and returns the status of the received message. A nil
// Request is complete.
//
// Errors: those of the operation.
//
// Deadline: that of the handle which started the operation. A send or receive that has not matched
// is withdrawn, and the communicator stays usable. A send on mpi and a matched message that makes
// no progress break the communicator, and the buffer may still be in use. A collective is ended,
// and its communicator is broken. The error is [ErrTimeout], or [ErrCanceled] if the context was
// canceled. On mpi it may not name the missing ranks.
func (q *Request) Wait() (Status, error) {
	if q == nil {
		return Status{}, nil
	}
	if !q.hold() {
		return q.st, q.err
	}
	if !q.complete() {
		q.c.core.recorder.Wait(q.ticket)
		var why error
		if q.op != nil {
			why = q.c.core.bc.Await(q.c.bound, q.op)
		} else {
			why = q.c.core.bc.Await(q.c.bound, q.req)
		}
		if why != nil && !q.complete() {
			if err := q.end(why); err != nil {
				q.c.core.ended(q.ticket, err)
				q.drop()
				return Status{}, err
			}
		}
	}
	return q.finish()
}

// end ends an operation at its deadline. It returns nil if the operation is then complete. Held.
func (q *Request) end(why error) error {
	if q.op != nil {
		if err := q.op.End(why); err != nil {
			return q.failed(err)
		}
		return nil
	}
	q.gone.CompareAndSwap(nil, &why)
	bc := q.c.core.bc
	bc.Cancel(q.req)
	// A matched operation is about to complete. But a stopped peer must not delay the deadline: the
	// buffer may then still be in use, and the communicator is broken.
	if !q.req.Ready() && bc.Await(&backend.Bound{Timeout: grace}, q.req) != nil {
		bc.Break(why)
		return q.failed(why)
	}
	return nil
}

// Test makes progress without waiting and reports whether the operation is complete. A nil Request
// is complete.
//
// Errors: those of the operation, once it is complete.
//
// Deadline: as for [Request.Wait].
func (q *Request) Test() (Status, bool, error) {
	if q == nil {
		return Status{}, true, nil
	}
	if !q.hold() {
		return q.st, true, q.err
	}
	if !q.poll() {
		q.drop()
		return Status{}, false, nil
	}
	st, err := q.finish()
	return st, true, err
}

// poll makes progress and reports whether the operation is complete. Held.
func (q *Request) poll() bool {
	if q.complete() {
		return true
	}
	q.c.core.bc.Poll()
	if q.complete() {
		return true
	}
	if why := q.c.bound.Err(q.begun); why != nil {
		return q.end(why) == nil
	}
	return false
}

// Cancel withdraws a send or receive that has not matched; Wait then returns [ErrCanceled]. An
// operation that has matched completes normally, as does a send on mpi. Cancel does nothing for a
// nil or complete Request.
//
// Errors: [ErrNotSupported] for a collective, which cannot be canceled.
func (q *Request) Cancel() error {
	if q == nil || !q.hold() {
		return nil
	}
	defer q.drop()
	switch {
	case q.complete():
		return nil
	case q.op != nil:
		return q.c.failed("cancel", Undefined, Undefined, fault(ErrNotSupported, "a collective cannot be canceled"))
	}
	q.c.core.bc.Cancel(q.req)
	return nil
}
