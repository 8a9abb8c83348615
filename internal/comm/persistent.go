package comm

import (
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Persistent is an operation with fixed arguments that can be started any number of times. It may be
// nil. Any number of goroutines may call its methods; all that wait for a completion get it.
type Persistent struct {
	c    *Comm
	name string
	peer int
	tag  int

	// A point-to-point operation, if op is nil.
	buf     []byte
	mode    backend.Mode
	receive bool
	req     backend.Request

	op backend.Operation // of a collective

	trace trace // for the flight recorder, of each start

	mu     sync.Mutex // guards what follows
	state  persistentState
	begun  time.Time
	starts uint32
	ticket flight.Ticket  // of the last start
	status backend.Status // of the last completion
	err    error
}

type persistentState uint8

const (
	inactive persistentState = iota
	active
	freed
)

var errUnderWay = fault(backend.ErrRequest, "the operation is under way; wait for it first")

// SendInit prepares a send. err is an error in the arguments.
func (c *Comm) SendInit(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) (*Persistent, error) {
	if err := c.checkSend(dest, tag, err); err != nil {
		return nil, c.Failed(op, dest, tag, err)
	}
	tr := c.core.message(flight.Send+flight.Kind(mode), backend.Persistent, len(buf), typ.ID, tag, dest)
	return &Persistent{c: c, name: op, peer: dest, tag: tag, buf: buf, mode: mode, trace: tr}, nil
}

// RecvInit prepares a receive. err is an error in the arguments.
func (c *Comm) RecvInit(op string, typ *backend.Datatype, buf []byte, source, tag int, err error) (*Persistent, error) {
	if err := c.checkRecv(source, tag, err); err != nil {
		return nil, c.Failed(op, source, tag, err)
	}
	tr := c.core.message(flight.Recv, backend.Persistent, len(buf), typ.ID, tag, source)
	return &Persistent{c: c, name: op, peer: source, tag: tag, buf: buf, receive: true, trace: tr}, nil
}

// Start starts the operation.
func (p *Persistent) Start() error {
	if p == nil {
		return (*Comm)(nil).failed("start", fault(backend.ErrRequest, "the persistent operation is nil"))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.c.core
	err := p.c.Usable()
	switch {
	case p.state == freed:
		err = fault(backend.ErrClosed, "the persistent operation is closed")
	case err == nil && p.state == active:
		err = errUnderWay
	}
	if err != nil {
		return p.failed(err)
	}
	p.begun = p.c.now()
	p.state = active
	p.starts++
	tr := &p.trace
	if p.op != nil {
		tr.typed = flight.Pair(uint32(tr.typed), p.starts)
	}
	p.ticket = k.recorder.BeginUntimed(tr.what, tr.count, tr.typed, tr.place)
	if p.op != nil {
		p.op.Start()
		return nil
	}
	p.req.Begin()
	if p.receive {
		k.irecv(&p.req, p.buf, p.peer, p.tag)
	} else {
		k.isend(&p.req, p.buf, p.peer, p.tag, p.mode)
	}
	return nil
}

func (p *Persistent) failed(err error) error { return p.c.Failed(p.name, p.peer, p.tag, err) }

// pending returns what the goroutines wait for.
func (p *Persistent) pending() backend.Pending {
	if p.op != nil {
		return p.op
	}
	return &p.req
}

func (p *Persistent) ready() bool {
	if p.op != nil {
		return p.op.Ready()
	}
	return p.req.Ready()
}

// Wait waits until the started operation is complete, or its deadline has passed, and returns its
// result.
func (p *Persistent) Wait() (backend.Status, error) {
	if p == nil {
		return backend.Status{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != active {
		return p.status, p.err
	}
	if !p.ready() {
		k := p.c.core
		k.recorder.Wait(p.ticket)
		if why := k.bc.Await(p.c.bound, p.pending()); why != nil {
			if err := p.end(why); err != nil {
				k.ended(p.ticket, err)
				return backend.Status{}, p.failed(err)
			}
		}
	}
	return p.complete()
}

// end ends the operation at its deadline. An error means that it is still under way.
func (p *Persistent) end(why error) error {
	if p.op != nil {
		return p.op.End(why)
	}
	if !p.c.core.withdraw(&p.req, why) {
		p.c.core.bc.Break(why) // the buffer may still be in use
		return why
	}
	return nil
}

// complete stores and returns the result of an operation that is ready.
func (p *Persistent) complete() (backend.Status, error) {
	p.state = inactive
	if p.op != nil {
		p.status, p.err = backend.Status{}, p.op.Err()
	} else {
		p.status, p.err = p.req.Status, p.req.Err
	}
	p.c.core.ended(p.ticket, p.err)
	if p.err != nil {
		p.err = p.failed(p.err)
	}
	return p.status, p.err
}

// Test makes progress and reports whether the operation is complete, with its result.
func (p *Persistent) Test() (backend.Status, bool, error) {
	if p == nil {
		return backend.Status{}, true, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != active {
		return p.status, true, p.err
	}
	if !p.ready() {
		p.c.core.bc.Poll()
	}
	if !p.ready() {
		if why := p.c.bound.Err(p.begun); why == nil || p.end(why) != nil {
			return backend.Status{}, false, nil
		}
	}
	st, err := p.complete()
	return st, true, err
}

// Close releases the operation.
func (p *Persistent) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == active && !p.c.core.life.ended() {
		return p.failed(errUnderWay)
	}
	if p.op != nil && p.state != freed && p.op.Ready() {
		p.op.Release() // one that is not ready ends with its communicator
	}
	p.state = freed
	return nil
}

// Active reports whether the operation has been started and its completion has not been returned.
func (p *Persistent) Active() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == active
}
