package comm

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Persistent is an operation with fixed arguments that can be started any number of times. It may be
// nil. Any number of goroutines may call its methods; all that wait for a completion get it.
//
// Its starts share one Request, whose phase says whether it is under way. If a goroutine has not yet returned
// from Wait or Test when the operation is started again, the next starts have another Request.
type Persistent struct {
	last word.Pointer[Request] // of the last start

	// A point-to-point operation, if op is nil.
	buf     []byte
	mode    backend.Mode
	receive bool

	op backend.Operation // of a collective

	trace  trace  // for the flight recorder, of each start
	bytes  int    // that each start of a collective moves
	starts uint32 // the goroutine that starts it writes it
}

var errUnderWay = fault(backend.ErrRequest, "the operation is under way; wait for it first")

// persistent completes p, with the facts that its requests share.
func (c *Comm) persistent(p *Persistent, name string, typ *backend.Datatype, peer, tag int) *Persistent {
	q := &Request{pending: &pending{c: c, op: p.op, name: name, peer: peer, tag: tag, typ: typ, kept: true}}
	word.StoreUint32(&q.word, uint32(phaseReturned))
	p.last.Store(q)
	p.trace.what |= flight.Starts
	return p
}

// SendInit prepares a send. err is an error in the arguments.
func (c *Comm) SendInit(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) (*Persistent, error) {
	if err := c.checkSend(dest, tag, err); err != nil {
		return nil, c.Failed(op, dest, tag, err)
	}
	tr := c.core.message(sendKind(mode), backend.Persistent, len(buf), typ.ID, tag, dest)
	return c.persistent(&Persistent{buf: buf, mode: mode.Of(typ.Elems()), trace: tr}, op, nil, dest, tag), nil
}

// RecvInit prepares a receive. err is an error in the arguments.
func (c *Comm) RecvInit(op string, typ *backend.Datatype, buf []byte, source, tag int, err error) (*Persistent, error) {
	if err := c.checkRecv(source, tag, err); err != nil {
		return nil, c.Failed(op, source, tag, err)
	}
	tr := c.core.message(flight.Recv, backend.Persistent, len(buf), typ.ID, tag, source)
	return c.persistent(&Persistent{buf: buf, receive: true, trace: tr}, op, typ, source, tag), nil
}

// Start starts the operation.
func (p *Persistent) Start() error {
	if p.none() {
		return (*Comm)(nil).failed("start", fault(backend.ErrRequest, "the persistent operation is nil"))
	}
	q := p.last.Load()
	c := q.c
	err := c.Usable()
	if err == nil {
		q, err = p.restart(q)
	}
	if err != nil {
		return q.failed(err)
	}
	q.beginFor(c)
	p.starts++
	tr := &p.trace
	if p.op != nil {
		tr.typed = flight.Pair(uint32(tr.typed), p.starts)
	}
	k := c.core
	q.ticket, q.what = k.record(*tr), tr.what
	if p.op != nil || p.receive {
		k.recorder.Length(q.ticket, p.bytes)
	}
	q.req.Owner = q
	q.req.Begin()
	switch {
	case p.op != nil:
		p.op.Start()
	case p.receive:
		k.irecv(&q.req, p.buf, q.peer, q.tag)
	default:
		k.isend(&q.req, p.buf, q.peer, q.tag, p.mode)
	}
	k.recorder.Started(q.ticket)
	if q.reopen(phaseStarting) {
		k.bc.Wake()
	}
	return nil
}

// restart returns the request of the start that the caller makes: q, or another one if q is still in use.
func (p *Persistent) restart(q *Request) (*Request, error) {
	mine, another := q.restart()
	switch {
	case mine:
		return q, nil
	case another:
		next := &Request{pending: &pending{c: q.c, op: p.op, name: q.name, peer: q.peer, tag: q.tag, typ: q.typ, kept: true, shared: true}}
		word.StoreUint32(&next.word, uint32(phaseStarting))
		p.last.Store(next)
		return next, nil
	case q.phase() >= phaseClosed:
		return q, fault(backend.ErrClosed, "the persistent operation is closed")
	}
	return q, q.c.core.refuse(errUnderWay)
}

// Wait waits until the started operation is complete, or its deadline has passed, and returns its
// result.
func (p *Persistent) Wait() (backend.Status, error) {
	if p.none() {
		return backend.Status{}, nil
	}
	return p.pinned().wait(phaseReturned)
}

// pinned returns the request of the last start, with a hold.
func (p *Persistent) pinned() *Request {
	q := p.last.Load()
	q.pin()
	return q
}

// Hold returns the request of the start under way, nil if there is none. The caller waits for it with Await.
func (p *Persistent) Hold() *Request {
	if !p.Active() {
		return nil
	}
	return p.pinned()
}

// Await is Wait for a request of Hold.
func (q *Request) Await() error {
	_, err := q.wait(phaseReturned)
	return err
}

// Test makes progress and reports whether the operation is complete, with its result.
func (p *Persistent) Test() (backend.Status, bool, error) {
	if p.none() {
		return backend.Status{}, true, nil
	}
	return p.pinned().test(phaseReturned)
}

// Close releases the operation.
func (p *Persistent) Close() error {
	if p.none() {
		return nil
	}
	q := p.pinned()
	defer q.leave()
	if !q.move(phaseReturned, phaseClosed) && !q.move(phaseAbandoned, phaseClosed) && q.phase() < phaseClosed && !q.c.core.life.ended() {
		return q.failed(errUnderWay)
	}
	return nil
}

// none reports whether there is no operation: p is nil, or no Init function has made it.
func (p *Persistent) none() bool { return p == nil || p.last.Load() == nil }

// Active reports whether the operation has been started and its completion has not been returned.
func (p *Persistent) Active() bool {
	if p.none() {
		return false
	}
	switch p.last.Load().phase() {
	case phaseReturned, phaseAbandoned, phaseClosed, phaseReleased:
		return false
	}
	return true
}
