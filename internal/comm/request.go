package comm

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Request is a nonblocking operation. It may be nil, which is complete. Several goroutines may wait for
// one. It is small, because every operation allocates one.
type Request struct {
	completion
	elems backend.Elems // of the result
	result
	*pending // until the operation is over and nobody has a hold
}

// result is what Wait returns. The goroutine that claims the operation writes it; it does not change afterwards.
type result struct {
	bytes       int
	from, label int32  // source and tag
	failure     *error // nil: none
}

// set stores the result.
func (q *Request) set(st backend.Status, err error) {
	q.bytes, q.from, q.label, q.elems = st.Bytes, int32(st.Source), int32(st.Tag), st.Elems
	if err != nil {
		failure := err // err itself would be on the heap
		q.failure = &failure
	} else if q.failure != nil { // of the last start of a persistent operation
		q.failure = nil
	}
}

// get returns the result.
func (q *Request) get() (backend.Status, error) {
	st := backend.Status{Source: int(q.from), Tag: int(q.label), Bytes: q.bytes, Elems: q.elems}
	if q.failure != nil {
		return st, *q.failure
	}
	return st, nil
}

// pending is the part of a request that only an operation under way needs. It is pooled.
type pending struct {
	c    *Comm
	req  backend.Request   // point to point
	op   backend.Operation // collective, or an exchange
	name string            // of an operation that is not a collective
	peer int
	tag  int
	coll backend.Coll // of a collective

	typ *backend.Datatype // of the buffer of a receive; otherwise nil

	ticket flight.Ticket  // of its record
	what   uint64         // of its record
	limit  *backend.Bound // nil: none
	bound  backend.Bound  // what limit points to if there is a timeout
	kept   bool           // it belongs to a persistent operation
	shared bool           // a goroutine may still look at op for an earlier start

	spare *[spareRequests]Request // the last of those used is this operation's; to allocate many at a time is faster
	used  int

	done word.Pointer[chan struct{}] // what Done returns; nil if it has not been called
}

// spareRequests is how many requests are allocated at a time. They are freed together. Together they have less than 512
// bytes: the allocator spends more on what is longer and has pointers.
const spareRequests = 12

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
	p.req.Parts, p.req.Owner, p.typ = parts, nil, typ
	return p
}

// put returns a record to the pool. It keeps the fields that the next operation probably sets to the same values.
func (j *job) put(p *pending) {
	p.coll = 0
	if p.op != nil {
		p.op = nil
	}
	if p.req.Parts != nil {
		p.req.Parts = nil
	}
	if p.done.Load() != nil {
		p.done.Store(nil)
	}
	j.pendings.Put(p)
}

// beginFor says for whom an operation begins now, and when it must end.
func (p *pending) beginFor(c *Comm) {
	if p.c != c { // to store a pointer is slow while the garbage collector runs
		p.c = c
	}
	b := c.bound
	if b != nil && b.Timeout > 0 {
		p.bound = *b
		p.bound.Since = time.Now()
		b = &p.bound
	}
	if p.limit != b {
		p.limit = b
	}
}

// request returns the request of the operation under way.
func (p *pending) request() *Request { return &p.spare[p.used-1] }

// started is called when the operation has been started, and returns its request. The record of a message that is
// complete returns to the pool.
func (p *pending) started() *Request {
	q, k := p.request(), p.c.core
	if p.op != nil || !p.req.Ready() || typed(p.req.Status, p.typ, p.req.Err) != nil {
		k.recorder.Started(p.ticket)
		q.pending = p
		q.open()
		return q
	}
	q.set(p.req.Status, nil)
	received := 0
	if p.typ != nil {
		received = p.req.Status.Bytes
	}
	k.recorder.Completed(p.ticket, received)
	k.job.put(p)
	return q
}

// free returns the record to the pool.
func (q *Request) free() {
	if q.op != nil {
		q.op.Release()
	}
	p := q.pending
	q.pending = nil
	p.c.core.job.put(p)
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

// Soon implements backend.Spinner, if the operation does.
func (r *restartable) Soon() bool {
	o, ok := r.op.(backend.Spinner)
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

// giveUp ends an operation that the caller has claimed, because of why. It may have been completed meanwhile.
func (q *Request) giveUp(why error, to phase) (backend.Status, error) {
	if q.op != nil {
		if err := q.op.End(why); err != nil {
			return q.store(backend.Status{}, err, to, true)
		}
		return q.settle(to)
	}
	if q.typ != nil {
		why = q.c.core.arrived(why)
	}
	if !q.c.core.withdraw(&q.req, why, q.pending) {
		return q.store(backend.Status{}, why, to, true)
	}
	return q.settle(to)
}

// store stores the result and ends the caller's hold, unless the operation is still under way.
func (q *Request) store(st backend.Status, err error, to phase, underWay bool) (backend.Status, error) {
	k, kept := q.c.core, q.kept
	if _, both := q.op.(*exchange); both || q.typ != nil {
		k.recorder.Received(q.what, st.Bytes)
	}
	k.recorder.End(q.ticket, err)
	if err != nil {
		err = q.failed(err)
	}
	word.Writing(&q.result)
	q.set(st, err)
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
		q.markReturned()
		word.Reading(&q.result)
		return q.get()
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
			k := q.c.core
			since := k.recorder.Wait(q.ticket)
			why := k.bc.Await(q.limit, q.awaited())
			k.recorder.Waited(q.what, since)
			if why != nil && q.claim() {
				return q.giveUp(why, to)
			}
		case phaseClaimed, phaseStarting:
			_ = q.c.core.bc.Await(nil, (*decided)(q)) // has no limit
		default:
			return q.storedResult(to)
		}
	}
}

// storedResult returns the result that is stored, and ends the caller's hold.
func (q *Request) storedResult(to phase) (backend.Status, error) {
	if to == phaseReturned {
		q.markReturned()
	}
	word.Reading(&q.result)
	st, err := q.get()
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
		q.markReturned()
		st, err := q.get()
		return st, true, err
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
			st, err = q.giveUp(why, to)
			return st, true, err
		}
	}
	if !q.phase().stored() {
		q.leave()
		return backend.Status{}, false, nil
	}
	st, err = q.storedResult(to)
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
