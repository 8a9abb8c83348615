package cohort

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// Request is a nonblocking operation. Its buffers belong to the operation until
// it is complete, which Wait, Test or one of the sets (WaitAll, WaitAny,
// WaitSome, TestAll, TestAny, TestSome) finds out.
//
// A Request may be waited for by several goroutines, and again after it is
// complete: every Wait returns the same.
type Request struct {
	c    *Comm
	name string // of a point-to-point operation
	peer int
	tag  int
	req  backend.Request

	op   *sched.Op // of a collective
	coll backend.Coll

	begun    time.Time             // when the operation's own deadline counts from; zero without one
	gone     atomic.Pointer[error] // why the operation was ended before its time
	reported atomic.Bool           // its completion has been returned to the user
}

func (q *Request) ready() bool {
	if q.op != nil {
		return q.op.Ready()
	}
	return q.req.Ready()
}

// result returns the outcome of a complete operation.
func (q *Request) result() (Status, error) {
	q.reported.Store(true)
	if q.op != nil {
		if err := q.op.Err(); err != nil {
			peer := Undefined
			if q.peer >= 0 {
				peer = q.peer
			}
			return Status{}, q.c.failed(collName(q.coll, backend.Nonblocking), peer, Undefined, err)
		}
		return Status{}, nil
	}
	st := status(q.req.Status)
	err := q.req.Err
	if err == nil {
		return st, nil
	}
	if why := q.gone.Load(); why != nil && errors.Is(err, ErrCanceled) {
		err = *why
	}
	return st, q.c.failed(q.name, q.peer, q.tag, err)
}

func status(st backend.Status) Status { return Status{Source: st.Source, Tag: st.Tag, bytes: st.Bytes} }

// Wait waits until the operation is complete and returns the status of what was
// received. A nil Request is complete.
//
// Deadline: the operation is ended: a receive or send that has not matched is
// taken back; a collective is broken off, with its communicator. The error is
// [ErrTimeout] or [ErrCanceled].
func (q *Request) Wait() (Status, error) {
	if q == nil {
		return Status{}, nil
	}
	if !q.ready() {
		if err := q.await(); err != nil {
			return Status{}, err
		}
	}
	return q.result()
}

// await waits until the operation is complete, ending it if its time is up. An
// error means that it is still under way.
func (q *Request) await() error {
	if q.op != nil {
		if err := sched.Wait(q.c.bound, q.op); err != nil {
			return q.c.failed(collName(q.coll, backend.Nonblocking), Undefined, Undefined, err)
		}
		return nil
	}
	if err := q.c.core.bc.Await(q.c.bound, &q.req); err != nil {
		return q.end(err)
	}
	return nil
}

// end ends an operation whose time is up: nil if it is then complete.
func (q *Request) end(why error) error {
	bc := q.c.core.bc
	if q.op != nil {
		if err := sched.End(q.op, why); err != nil {
			return q.c.failed(collName(q.coll, backend.Nonblocking), Undefined, Undefined, err)
		}
		return nil
	}
	q.gone.CompareAndSwap(nil, &why)
	bc.Cancel(&q.req)
	// What has matched is about to complete; but a peer that stands still in the
	// middle of it must not hold up the deadline.
	if bc.Await(&backend.Bound{Timeout: sched.Grace}, &q.req) != nil {
		return q.c.failed(q.name, q.peer, q.tag, why)
	}
	return nil
}

// Test makes what progress is possible without waiting and reports whether the
// operation is complete. A nil Request is.
func (q *Request) Test() (Status, bool, error) {
	if q == nil {
		return Status{}, true, nil
	}
	if !q.poll() {
		return Status{}, false, nil
	}
	st, err := q.result()
	return st, true, err
}

// poll makes progress and reports whether the operation is complete.
func (q *Request) poll() bool {
	if q.ready() {
		return true
	}
	q.c.core.bc.Poll()
	if q.ready() {
		return true
	}
	if q.c.bound == nil {
		return false
	}
	if why := q.c.bound.Err(q.begun); why != nil {
		return q.end(why) == nil
	}
	return false
}

// Cancel takes back a send or receive that has not matched; Wait then returns
// [ErrCanceled]. If it has matched, it completes as if nothing had been said. A
// collective cannot be canceled ([ErrNotSupported]).
func (q *Request) Cancel() error {
	switch {
	case q == nil || q.ready():
		return nil
	case q.op != nil:
		return q.c.failed("cancel", Undefined, Undefined, fault(ErrNotSupported, "a collective cannot be canceled"))
	}
	q.c.core.bc.Cancel(&q.req)
	return nil
}
