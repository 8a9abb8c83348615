package comm

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Request is a nonblocking operation. It may be nil, which is complete. Several goroutines may wait for
// one. It is small, because every operation allocates one.
type Request struct {
	c *Comm

	// users is 1 and the number of goroutines that use pending. When the last of them takes the result,
	// pending returns to the pool, users becomes released, and st and err keep the result.
	users    atomic.Int32
	reported atomic.Bool // its completion has been returned to the user
	*pending
	st  backend.Status
	err error
}

// pending is the part of a request that only an operation under way needs. It is pooled.
type pending struct {
	req  backend.Request   // point to point
	op   backend.Operation // collective
	name string            // of a point-to-point operation
	peer int
	tag  int
	coll backend.Coll // of a collective

	ticket flight.Ticket         // of its record
	begun  time.Time             // start of the operation's timeout; zero without one
	gone   atomic.Pointer[error] // why the operation was ended at its deadline
}

// pending returns a record from the pool.
func (j *job) pending() *pending {
	if p, ok := j.pendings.Get().(*pending); ok {
		return p
	}
	return new(pending)
}

// put returns a record to the pool.
func (j *job) put(p *pending) {
	p.op, p.coll = nil, 0
	if p.gone.Load() != nil {
		p.gone.Store(nil)
	}
	j.pendings.Put(p)
}

const (
	released  int32 = 0
	releasing int32 = -1 // while finish stores the result
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

// started is called when an operation on messages has been started. One that is complete returns to the pool.
func (q *Request) started() *Request {
	if !q.req.Ready() || q.req.Err != nil {
		q.users.Store(1)
		return q
	}
	q.st = q.req.Status
	q.c.core.recorder.End(q.ticket)
	q.c.core.job.put(q.pending)
	q.pending = nil
	return q
}

// result returns the result of an operation that is in the pool.
func (q *Request) result() (backend.Status, error) {
	if q.live() {
		q.reported.Store(true)
	}
	return q.st, q.err
}

// finish ends a hold of a complete operation and returns its result.
func (q *Request) finish() (backend.Status, error) {
	st, err := q.outcome()
	if !q.reported.Swap(true) {
		q.c.core.ended(q.ticket, err)
	}
	if !q.users.CompareAndSwap(2, releasing) {
		q.drop()
		return st, err
	}
	q.st, q.err = st, err
	if q.op != nil {
		q.op.Release()
	}
	q.c.core.job.put(q.pending)
	q.pending = nil
	q.users.Store(released)
	return st, err
}

// awaited returns what the goroutines wait for. Held.
func (q *Request) awaited() backend.Pending {
	if q.op != nil {
		return q.op
	}
	return &q.req
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
func (q *Request) outcome() (backend.Status, error) {
	if q.op != nil {
		if err := q.op.Err(); err != nil {
			return backend.Status{}, q.failed(err)
		}
		return backend.Status{}, nil
	}
	st, err := q.req.Status, q.req.Err
	if err == nil {
		return st, nil
	}
	if why := q.gone.Load(); why != nil && errors.Is(err, backend.ErrCanceled) {
		err = *why
	}
	return st, q.failed(err)
}

func (q *Request) failed(err error) error {
	name := q.name
	if q.coll != 0 {
		name = CollName(q.coll, backend.Nonblocking)
	}
	return q.c.Failed(name, q.peer, q.tag, err)
}

// Wait waits until the operation is complete, or its deadline has passed, and returns its result.
func (q *Request) Wait() (backend.Status, error) {
	if q == nil {
		return backend.Status{}, nil
	}
	if !q.hold() {
		return q.result()
	}
	if !q.complete() {
		q.c.core.recorder.Wait(q.ticket)
		if why := q.c.core.bc.Await(q.c.bound, q.awaited()); why != nil && !q.complete() {
			if err := q.end(why); err != nil {
				q.c.core.ended(q.ticket, err)
				q.drop()
				return backend.Status{}, err
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
	if !q.c.core.cancel(&q.req) {
		q.c.core.bc.Break(why)
		return q.failed(why)
	}
	return nil
}

// Test makes progress and reports whether the operation is complete, with its result.
func (q *Request) Test() (backend.Status, bool, error) {
	if q == nil {
		return backend.Status{}, true, nil
	}
	if !q.hold() {
		st, err := q.result()
		return st, true, err
	}
	if !q.poll() {
		q.drop()
		return backend.Status{}, false, nil
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

// Cancel withdraws a send or receive that has not matched.
func (q *Request) Cancel() error {
	if q == nil || !q.hold() {
		return nil
	}
	defer q.drop()
	switch {
	case q.complete():
		return nil
	case q.op != nil:
		return q.c.failed("cancel", fault(backend.ErrNotSupported, "a collective cannot be canceled"))
	}
	q.c.core.bc.Cancel(&q.req)
	return nil
}
