package cohort

import (
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/view"
)

const grace = sched.Grace

// Persistent is an operation with fixed arguments that can be started any number of times.
// [SendInit], [RecvInit] and the Init functions of the collectives return one. From Start until the
// operation is complete, its buffers belong to it. Start and Wait do not allocate.
//
// Any number of goroutines may call its methods; all that wait for a completion get it.
type Persistent struct {
	c    *Comm
	name string
	peer int
	tag  int

	start func(*Persistent) // starts a point-to-point operation
	buf   []byte
	mode  backend.Mode
	req   backend.Request

	op backend.Operation // of a collective

	trace trace // for the flight recorder, of each start

	mu     sync.Mutex // guards what follows
	state  persistentState
	begun  time.Time
	starts uint32
	ticket flight.Ticket // of the last start
	status Status        // of the last completion
	err    error
}

type persistentState uint8

const (
	inactive persistentState = iota
	active
	freed
)

// SendInit prepares a [Send] that can be started any number of times.
//
// Local.
//
// Buffers: each Start sends the current contents of buf, which must not be written until the
// operation is complete.
//
// Errors: those for wrong arguments come from the call, all others of [Send] from
// [Persistent.Wait].
//
// Deadline: the call does not wait. Wait or Test ends a started operation as [Send] does.
func SendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	return c.sendInit("sendinit", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
}

// SsendInit prepares an [Ssend] that can be started any number of times.
//
// Local.
//
// Buffers: each Start sends the current contents of buf, which must not be written until the
// operation is complete.
//
// Errors: those for wrong arguments come from the call, all others of [Ssend] from
// [Persistent.Wait].
//
// Deadline: the call does not wait. Wait or Test ends a started operation as [Ssend] does.
func SsendInit[T any](c *Comm, buf []T, dest, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	return c.sendInit("ssendinit", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err)
}

// RecvInit prepares a [Recv] that can be started any number of times.
//
// Local.
//
// Buffers: as for [Recv]. buf must not be used between Start and completion.
//
// Errors: those for wrong arguments come from the call, all others of [Recv] from
// [Persistent.Wait].
//
// Deadline: the call does not wait. Wait or Test ends a started operation as [Recv] does.
func RecvInit[T any](c *Comm, buf []T, source, tag int) (*Persistent, error) {
	typ, err := typeFor[T]()
	err = c.checkRecv(source, tag, err)
	if err != nil {
		return nil, c.failed("recvinit", source, tag, err)
	}
	p := &Persistent{c: c, name: "recvinit", peer: source, tag: tag, buf: view.Bytes(buf), start: startRecv}
	p.traceAs(flight.Recv, typ)
	return p, nil
}

func (c *Comm) sendInit(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) (*Persistent, error) {
	err = c.checkSend(dest, tag, err)
	if err != nil {
		return nil, c.failed(op, dest, tag, err)
	}
	p := &Persistent{c: c, name: op, peer: dest, tag: tag, buf: buf, mode: mode, start: startSend}
	p.traceAs(flight.Send+flight.Kind(mode), typ)
	return p, nil
}

// traceAs sets what the recorder stores of each start of a point-to-point operation.
func (p *Persistent) traceAs(kind flight.Kind, typ *backend.Datatype) {
	p.trace = trace{
		what: p.c.core.message(kind, backend.Persistent), count: uint64(len(p.buf)),
		typed: flight.Pair(typ.ID, uint32(p.tag)), place: flight.Pair(uint32(int32(p.peer)), 0),
	}
}

func newPersistentColl(c *Comm, op backend.Operation, call *backend.Call, tr trace) *Persistent {
	return &Persistent{trace: tr, c: c, name: collName(call.Coll, backend.Persistent), peer: rootOf(call), tag: Undefined, op: op}
}

func startSend(p *Persistent) {
	if p.peer == ProcNull {
		p.req.Complete(backend.Status{}, nil)
		return
	}
	p.c.core.bc.Isend(&p.req, p.buf, p.peer, p.tag, p.mode)
}

func startRecv(p *Persistent) {
	if p.peer == ProcNull {
		p.req.Complete(backend.Status{Source: ProcNull, Tag: AnyTag}, nil)
		return
	}
	p.c.core.bc.Irecv(&p.req, p.buf, p.peer, backendTag(p.tag))
}

// Start starts the operation and returns without waiting.
//
// Local for point-to-point operations. Collective otherwise: all ranks start the operation equally
// often, and different operations in any order.
//
// Errors: [ErrRequest] if the operation is nil or under way, [ErrClosed] after Close of it or of
// the communicator. Failures of the operation come from Wait or Test.
func (p *Persistent) Start() error {
	if p == nil {
		return errNilPersistent("start")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.c.open()
	switch {
	case p.state == freed:
		err = fault(ErrClosed, "the persistent operation is closed")
	case err == nil && p.state == active:
		err = fault(ErrRequest, "the operation is under way; wait for it first")
	}
	if err != nil {
		return p.failed(err)
	}
	p.begun = p.c.now()
	p.state = active
	p.starts++
	tr := &p.trace
	if p.op != nil {
		tr.typed = tr.typed&(1<<32-1) | uint64(p.starts)<<32
	}
	p.ticket = p.c.core.recorder.BeginUntimed(tr.what, tr.count, tr.typed, tr.place)
	if p.op != nil {
		p.op.Start()
		return nil
	}
	p.req.Begin()
	p.start(p)
	return nil
}

func (p *Persistent) failed(err error) error { return p.c.failed(p.name, p.peer, p.tag, err) }

func errNilPersistent(op string) error {
	return &OpError{Op: op, Rank: Undefined, Peer: Undefined, Tag: Undefined, Err: fault(ErrRequest, "the persistent operation is nil")}
}

func (p *Persistent) ready() bool {
	if p.op != nil {
		return p.op.Ready()
	}
	return p.req.Ready()
}

// Wait waits until the started operation is complete and returns its status. If it has not been
// started since its last completion, Wait returns that status and error again. Before the first
// Start, and for nil, it returns at once.
//
// Errors: those of the operation.
//
// Deadline: as for [Request.Wait]. A point-to-point operation that was withdrawn can be started
// again.
func (p *Persistent) Wait() (Status, error) {
	if p == nil {
		return Status{}, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != active {
		return p.status, p.err
	}
	if !p.ready() {
		p.c.core.recorder.Wait(p.ticket)
		if err := p.await(); err != nil {
			p.c.core.ended(p.ticket, err)
			return Status{}, p.failed(err)
		}
	}
	return p.complete()
}

// await waits, and ends the operation at its deadline. An error means that it is still under way.
func (p *Persistent) await() error {
	var why error
	if p.op != nil {
		why = p.c.core.bc.Await(p.c.bound, p.op)
	} else {
		why = p.c.core.bc.Await(p.c.bound, &p.req)
	}
	if why != nil {
		return p.end(why)
	}
	return nil
}

func (p *Persistent) end(why error) error {
	if p.op != nil {
		return p.op.End(why)
	}
	bc := p.c.core.bc
	bc.Cancel(&p.req)
	if bc.Await(&backend.Bound{Timeout: grace}, &p.req) != nil {
		bc.Break(why) // the buffer may still be in use, as in Request.end
		return why
	}
	if errors.Is(p.req.Err, ErrCanceled) {
		p.req.Err = why
	}
	return nil
}

// complete stores and returns the result of an operation that is ready.
func (p *Persistent) complete() (Status, error) {
	p.state = inactive
	if p.op != nil {
		p.status, p.err = Status{}, p.op.Err()
	} else {
		p.status, p.err = status(p.req.Status), p.req.Err
	}
	p.c.core.ended(p.ticket, p.err)
	if p.err != nil {
		p.err = p.failed(p.err)
	}
	return p.status, p.err
}

// Test makes progress without waiting and reports whether the operation is complete. An operation
// that is not started counts as complete.
//
// Errors: those of the operation, once it is complete.
//
// Deadline: as for [Persistent.Wait].
func (p *Persistent) Test() (Status, bool, error) {
	if p == nil {
		return Status{}, true, nil
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
			return Status{}, false, nil
		}
	}
	st, err := p.complete()
	return st, true, err
}

// Close releases the operation. Closing it twice, or closing nil, does nothing.
//
// Errors: [ErrRequest] if the operation is under way on an open communicator.
func (p *Persistent) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == active && !p.c.core.closed.Load() {
		return p.failed(fault(ErrRequest, "the operation is under way; wait for it first"))
	}
	if p.op != nil && p.state != freed && p.op.Ready() {
		p.op.Release() // one that is not ready ends with its communicator
	}
	p.state = freed
	return nil
}

// StartAll starts all operations. If some cannot be started, it still starts the others, and
// returns the errors joined.
//
// Errors: those of [Persistent.Start].
func StartAll(ops ...*Persistent) error {
	var errs []error
	for _, p := range ops {
		if err := p.Start(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// WaitAllPersistent waits until all operations are complete and returns their errors joined. It
// ignores nil operations and operations that are not under way.
//
// Errors: those of the operations.
//
// Deadline: as for [Persistent.Wait], for each operation.
func WaitAllPersistent(ops ...*Persistent) error {
	var errs []error
	for _, p := range ops {
		if !p.underWay() {
			continue
		}
		if _, err := p.Wait(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *Persistent) underWay() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state == active
}
