package comm

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Request is a nonblocking operation. It may be nil, which is complete. Several goroutines may wait for
// one. It is small, because every operation allocates one.
//
// The goroutine that claims the operation writes st and err; they do not change afterwards.
type Request struct {
	c *Comm
	completion
	*pending // until the operation is over and nobody has a hold
	st       backend.Status
	err      error
}

// pending is the part of a request that only an operation under way needs. It is pooled.
type pending struct {
	req  backend.Request   // point to point
	op   backend.Operation // collective, or an exchange
	name string            // of an operation that is not a collective
	peer int
	tag  int
	coll backend.Coll // of a collective

	typ *backend.Datatype // of the buffer of a receive; otherwise nil

	ticket flight.Ticket  // of its record
	limit  *backend.Bound // nil: none
	bound  backend.Bound  // what limit points to if there is a timeout
	kept   bool           // it belongs to a persistent operation
	shared bool           // a goroutine may still look at op for an earlier start

	spare []Request // for the operations to come: to allocate many at a time is faster

	done word.Pointer[chan struct{}] // what Done returns; nil if it has not been called
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

// blocking returns the record of a blocking operation on a message. The backend handles its parts, if parts is not nil.
func (j *job) blocking(typ *backend.Datatype, parts backend.Parts) *pending {
	p := j.pending()
	p.req.Begin()
	p.req.Parts, p.typ = parts, typ
	return p
}

// put returns a record to the pool.
func (j *job) put(p *pending) {
	p.op, p.coll, p.typ, p.limit, p.req.Parts, p.req.Owner = nil, 0, nil, nil, nil, nil
	if p.done.Load() != nil {
		p.done.Store(nil)
	}
	j.pendings.Put(p)
}

// limits sets when the operation, which begins now, must end.
func (p *pending) limits(b *backend.Bound) {
	if p.limit = b; b != nil && b.Timeout > 0 {
		p.bound = *b
		p.bound.Since = time.Now()
		p.limit = &p.bound
	}
}

// started is called when an operation on messages has been started. One that is complete returns to the pool.
func (q *Request) started() *Request {
	if !q.req.Ready() || typed(q.req.Status, q.typ, q.req.Err) != nil {
		q.begin()
		return q
	}
	q.st = q.req.Status
	q.c.core.recorder.End(q.ticket)
	q.free()
	return q
}

// free returns the record to the pool.
func (q *Request) free() {
	if q.op != nil {
		q.op.Release()
	}
	q.c.core.job.put(q.pending)
	q.pending = nil
}

// leave ends a hold.
func (q *Request) leave() {
	if kept := q.kept; q.drop() {
		q.unused(kept)
	}
}

// unused is called when the result is stored and nobody has a hold. A record that is kept may be started again.
func (q *Request) unused(kept bool) {
	switch {
	case !kept:
		q.free()
	case q.release() && q.op != nil && !q.shared && q.op.Ready():
		q.op.Release() // one that is not ready ends with its communicator
	}
}

// complete reports whether the operation is complete. Held.
func (q *Request) complete() bool {
	if q.op != nil {
		return q.op.Ready()
	}
	return q.req.Ready()
}

// awaited returns what a goroutine waits for while the operation is under way. Held.
func (q *Request) awaited() backend.Pending {
	switch {
	case q.op == nil:
		return &q.req
	case q.kept:
		return (*restartable)(q)
	}
	return q.op
}

// restartable is ready when a start of a persistent collective is complete. Another goroutine may return its
// result, and start the collective again.
type restartable Request

// Ready implements backend.Pending.
func (r *restartable) Ready() bool {
	return r.phase() != phaseOpen || r.op.Ready() || r.phase() != phaseOpen
}

// Soon looks for a short time, if the operation can.
func (r *restartable) Soon() bool {
	o, ok := r.op.(interface{ Soon() bool })
	return ok && o.Soon()
}

// decided is ready when no other goroutine is about to store the result, or to start the operation again.
type decided Request

// Ready implements backend.Pending.
func (d *decided) Ready() bool {
	p := (*Request)(d).phase()
	return p != phaseClaimed && p != phaseStarting
}

// settle stores and returns the result of a complete operation that the caller has claimed.
func (q *Request) settle(to phase) (st backend.Status, err error) {
	if q.op != nil {
		if x, ok := q.op.(*exchange); ok {
			st = x.recv.Status
		}
		err = q.op.Err()
	} else {
		st, err = q.received()
	}
	return q.store(st, err, to, false)
}

// end ends an operation that the caller has claimed, because of why. It may have been completed meanwhile.
func (q *Request) end(why error, to phase) (backend.Status, error) {
	if q.op != nil {
		if err := q.op.End(why); err != nil {
			return q.store(backend.Status{}, err, to, true)
		}
		return q.settle(to)
	}
	if q.typ != nil {
		why = q.c.core.arrived(why)
	}
	if !q.c.core.end(&q.req, why) {
		return q.store(backend.Status{}, why, to, true)
	}
	return q.settle(to)
}

// store stores the result and ends the caller's hold, unless the operation is still under way.
func (q *Request) store(st backend.Status, err error, to phase, underWay bool) (backend.Status, error) {
	k, kept := q.c.core, q.kept
	k.ended(q.ticket, err)
	if err != nil {
		err = q.failed(err)
	}
	word.Writing(&q.st)
	q.st, q.err = st, err
	if kept && underWay {
		to = phaseAbandoned
	}
	free, others := q.publish(to, underWay)
	switch {
	case others:
		k.bc.Wake()
	case free:
		q.unused(kept)
	}
	return st, err
}

// operation returns the name of the operation.
func (q *Request) operation() string {
	if q.coll != 0 {
		return CollName(q.coll, backend.Nonblocking)
	}
	return q.name
}

func (q *Request) failed(err error) error {
	peer, tag := q.peer, q.tag
	if x, ok := q.op.(*exchange); ok && x.recv.Ready() && x.recv.Err == nil { // it is the send that failed
		peer, tag = x.dest, x.sendTag
	}
	return q.c.Failed(q.operation(), peer, tag, err)
}

// Wait waits until the operation is complete, or its deadline has passed, and returns its result.
func (q *Request) Wait() (backend.Status, error) {
	if q == nil {
		return backend.Status{}, nil
	}
	if !q.hold() {
		q.take()
		word.Reading(&q.st)
		return q.st, q.err
	}
	return q.wait(phaseReturned)
}

// wait waits until the result is stored, and returns it. The phase is then to, or a later one. Held until then.
func (q *Request) wait(to phase) (backend.Status, error) {
	for {
		switch q.phase() {
		case phaseOpen:
			if q.complete() {
				if q.claim() {
					return q.settle(to)
				}
				continue
			}
			q.c.core.recorder.Wait(q.ticket)
			if why := q.c.core.bc.Await(q.limit, q.awaited()); why != nil && q.claim() {
				return q.end(why, to)
			}
		case phaseClaimed, phaseStarting:
			_ = q.c.core.bc.Await(nil, (*decided)(q)) // has no limit
		default:
			return q.result(to)
		}
	}
}

// result returns the result that is stored, and ends the caller's hold.
func (q *Request) result(to phase) (backend.Status, error) {
	if to == phaseReturned {
		q.take()
	}
	word.Reading(&q.st)
	st, err := q.st, q.err
	q.leave()
	return st, err
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
	if q.complete() {
		q.leave()
		return closed
	}
	done := make(chan struct{})
	if !q.done.CompareAndSwap(nil, &done) {
		done = *q.done.Load()
		q.leave()
		return done
	}
	word.Go(func() {
		_, _ = q.wait(phaseEnded) // Wait returns them
		close(done)
	})
	return done
}

// Test makes progress and reports whether the operation is complete, with its result.
func (q *Request) Test() (backend.Status, bool, error) {
	if q == nil {
		return backend.Status{}, true, nil
	}
	if !q.hold() {
		q.take()
		return q.st, true, q.err
	}
	return q.test(phaseReturned)
}

// test makes progress and ends the operation if its deadline has passed. If the result is then stored,
// test returns it, and the phase is to, or a later one. Held until then.
func (q *Request) test(to phase) (st backend.Status, done bool, err error) {
	if q.phase() == phaseOpen {
		ready := q.complete()
		if !ready {
			q.c.core.bc.Poll()
			ready = q.complete()
		}
		if ready {
			if q.claim() {
				st, err = q.settle(to)
				return st, true, err
			}
		} else if why := q.limit.Err(time.Time{}); why != nil && q.claim() {
			st, err = q.end(why, to)
			return st, true, err
		}
	}
	if !q.phase().stored() {
		q.leave()
		return backend.Status{}, false, nil
	}
	st, err = q.result(to)
	return st, true, err
}

// Cancel withdraws a send or receive that has not matched.
func (q *Request) Cancel() error {
	if q == nil || !q.hold() {
		return nil
	}
	defer q.leave()
	switch {
	case q.complete():
		return nil
	case q.op != nil:
		return q.c.failed("cancel", fault(backend.ErrNotSupported, "only a send or a receive can be canceled"))
	}
	q.c.core.bc.Cancel(&q.req)
	return nil
}
