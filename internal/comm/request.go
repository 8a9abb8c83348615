package comm

import (
	"errors"
	"runtime"
	"sync"
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
	op   backend.Operation // collective, or an exchange
	name string            // of an operation that is not a collective
	peer int
	tag  int
	coll backend.Coll // of a collective

	ticket flight.Ticket         // of its record
	begun  time.Time             // start of the operation's timeout; zero without one
	gone   atomic.Pointer[error] // why the operation was ended at its deadline

	spare []Request // for the operations to come: to allocate many at a time is faster

	done   atomic.Pointer[chan struct{}] // what Done returns; nil if it has not been called
	ending sync.Mutex                    // held while op is ended at its deadline, and while its result is read then
}

// spareRequests is how many requests are allocated at a time. They are freed together.
const spareRequests = 16

// pending returns a record from the pool.
func (j *job) pending() *pending {
	if p, ok := j.pendings.Get().(*pending); ok {
		return p
	}
	return new(pending)
}

// put returns a record to the pool.
func (j *job) put(p *pending) {
	p.op, p.coll, p.req.Parts = nil, 0, nil
	if p.gone.Load() != nil {
		p.gone.Store(nil)
	}
	if p.done.Load() != nil {
		p.done.Store(nil)
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
		if q.c.bound != nil {
			q.ending.Lock()
			defer q.ending.Unlock()
		}
		var st backend.Status
		if x, ok := q.op.(*exchange); ok {
			st = x.recv.Status
		}
		if err := q.op.Err(); err != nil {
			return st, q.failed(err)
		}
		return st, nil
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
	peer, tag := q.peer, q.tag
	if x, ok := q.op.(*exchange); ok && x.recv.Ready() && x.recv.Err == nil { // it is the send that failed
		peer, tag = x.dest, x.sendTag
	}
	return q.c.Failed(name, peer, tag, err)
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
		if err := q.await(); err != nil {
			q.drop()
			return backend.Status{}, err
		}
	}
	return q.finish()
}

// await waits until the operation is complete, or ends it at its deadline. An error means that it is
// still under way. Held.
func (q *Request) await() error {
	q.c.core.recorder.Wait(q.ticket)
	why := q.c.core.bc.Await(q.c.bound, q.awaited())
	if why == nil || q.complete() {
		return nil
	}
	err := q.end(why)
	if err != nil {
		q.c.core.ended(q.ticket, err)
	}
	return err
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done returns a channel that is closed when Wait does not wait any more. A goroutine waits for that.
func (q *Request) Done() <-chan struct{} {
	if q == nil || !q.hold() {
		return closed
	}
	defer q.drop()
	if q.complete() {
		return closed
	}
	done := make(chan struct{})
	if !q.done.CompareAndSwap(nil, &done) {
		return *q.done.Load()
	}
	q.users.Add(1)
	go func() {
		_ = q.await() // Wait returns the error
		if q.reported.Load() {
			_, _ = q.finish()
		} else {
			q.drop()
		}
		close(done)
	}()
	return done
}

// end ends an operation at its deadline. It returns nil if the operation is then complete. Held.
func (q *Request) end(why error) error {
	if q.op != nil {
		q.ending.Lock()
		defer q.ending.Unlock()
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
		return q.c.failed("cancel", fault(backend.ErrNotSupported, "only a send or a receive can be canceled"))
	}
	q.c.core.bc.Cancel(&q.req)
	return nil
}
