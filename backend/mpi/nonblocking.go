//go:build cgo && linux

package mpi

import (
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// operation is a nonblocking or persistent collective of the library.
type operation struct {
	c          *comm
	o          op
	call       libmpi.Coll
	input      []byte  // of a persistent one in place: what each start copies to call.Send
	narrow     []int32 // the library's copies of counts and displacements
	persistent bool
	pins       runtime.Pinner

	state atomic.Uint32
	err   error
}

// States of an operation.
//
//	from        event                                                   to
//	-           StartCollective                                         opPending
//	-           prepare                                                 opDone
//	opDone      Start                                                   opPending
//	opPending   finish: the library has completed it                    opDone
//	opPending   abandon: its wait is over; the library still uses it    opAbandoned
//
// The engine's lock decides between the last two: finish comes after the operation has left the engine's list, and abandon
// finds it there.
const (
	opPending uint32 = iota
	opDone
	opAbandoned
)

// StartCollective implements backend.Collectives.
func (c *comm) StartCollective(call *backend.Call) (backend.Operation, error) {
	if call.Form == backend.Persistent {
		return c.prepare(call)
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if c.p.job.agrees() {
		return nil, nil
	}
	if call.Err != nil {
		return nil, call.Err
	}
	if c.scheduled(call) || c.guarded(call) || call.Op != nil && c.p.ops.needsCallback(call.Op) {
		return nil, nil
	}
	op, err := c.operation(call)
	if err != nil {
		return nil, err
	}
	c.calls.Add(1)
	if code := c.data.Begin(&op.call, op.narrow, &op.o.h); code != 0 {
		op.pins.Unpin()
		return nil, c.ended(code, call, op.call.Send)
	}
	c.watchColl(op)
	return op, nil
}

// prepare makes a persistent collective.
func (c *comm) prepare(call *backend.Call) (backend.Operation, error) {
	if !c.p.lib.persistent || !c.p.lib.colls[call.Coll].persistent || c.scheduled(call) || call.Op != nil && c.p.ops.needsCallback(call.Op) {
		return nil, nil
	}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	op, err := c.operation(call)
	if err != nil {
		return nil, err
	}
	op.persistent = true
	if call.InPlace && !op.call.InPlace {
		op.input = c.input(call)
	}
	op.state.Store(opDone)
	code := c.ctl.Begin(&op.call, op.narrow, &op.o.h) // see Collective
	if code == libmpi.Missing || code == libmpi.TooLarge {
		op.pins.Unpin()
		return nil, nil
	}
	if code != 0 {
		op.pins.Unpin()
		return nil, c.ended(code, call, op.call.Send)
	}
	c.p.engine.prepare(op)
	return op, nil
}

// prepare keeps a persistent collective, which the program may forget: its memory stays pinned until its communicator is
// closed, or Release.
func (e *engine) prepare(op *operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.prepared == nil {
		e.prepared = make(map[*operation]struct{})
	}
	e.prepared[op] = struct{}{}
}

// forget takes a persistent collective out of those that are kept. Only one caller gets true, and frees it.
func (e *engine) forget(op *operation) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, kept := e.prepared[op]
	delete(e.prepared, op)
	return kept
}

// releasePrepared frees the persistent collectives of a closed communicator, in which no call is inside. It returns
// false if the library still works on one of its collectives.
func (e *engine) releasePrepared(c *comm) bool {
	e.mu.Lock()
	busy := slices.ContainsFunc(e.ops, func(o *op) bool { return o.c == c && o.coll != nil })
	var all []*operation
	for op := range e.prepared {
		if op.c == c {
			all = append(all, op)
		}
	}
	e.mu.Unlock()
	if busy {
		return false
	}
	for _, op := range all {
		op.free()
	}
	return true
}

// free gives a persistent collective that the library does not work on back to it.
func (op *operation) free() {
	if op.c.p.engine.forget(op) {
		op.o.h.Free()
		op.pins.Unpin()
	}
}

// operation translates a call and pins the memory that the library will use.
func (c *comm) operation(call *backend.Call) (*operation, error) {
	op, ok := c.p.engine.colls.Get().(*operation)
	if !ok {
		op = new(operation)
	}
	op.c, op.o.c, op.o.coll = c, c, op
	if err := c.translate(call, &op.call); err != nil {
		return nil, err
	}
	a := &op.call
	for _, b := range [][]byte{a.Send, a.Recv} {
		if len(b) > 0 {
			op.pins.Pin(&b[0])
		}
	}
	counted := false
	for _, n := range []*[]int{&a.SendCounts, &a.SendDispls, &a.RecvCounts, &a.RecvDispls} {
		if len(*n) > 0 {
			*n = append([]int(nil), *n...) // the caller's may change
			op.pins.Pin(&(*n)[0])
			counted = true
		}
	}
	if counted {
		op.narrow = make([]int32, 4*a.Size)
		op.pins.Pin(&op.narrow[0])
	}
	return op, nil
}

func (c *comm) watchColl(op *operation) {
	c.p.rest(len(op.call.Send) + len(op.call.Recv))
	c.p.engine.watch(&op.o)
	if err := c.usable(); err != nil {
		c.drop(err)
	}
}

// Ready implements backend.Pending.
func (op *operation) Ready() bool { return op.state.Load() != opPending }

// Err implements backend.Operation.
func (op *operation) Err() error { return op.err }

// Start implements backend.Operation.
func (op *operation) Start() {
	if err := op.c.enter(); err != nil {
		op.err = err
		return
	}
	defer op.c.leave()
	op.err = nil
	op.state.Store(opPending)
	op.c.calls.Add(1)
	copy(op.call.Send, op.input)
	if code := op.o.h.Start(); code != 0 {
		op.c.miscounts.Store(true)
		op.err = op.c.fault(code)
		op.state.Store(opDone)
		op.c.Break(op.err)
		return
	}
	op.c.watchColl(op)
}

// finish completes the operation once the library has. Nobody else does: it is not among the engine's any more.
func (op *operation) finish(err error) {
	if err != nil {
		op.c.miscounts.Store(true)
	}
	if !op.persistent {
		op.pins.Unpin()
	}
	if op.state.Load() != opPending {
		return // abandoned; the communicator's ranks free a persistent one when they have closed it
	}
	if err != nil {
		op.c.Break(err)
	}
	op.err = err
	op.state.Store(opDone)
}

// abandon ends the operation for its waiter; the library still works on it. The engine's lock is held, and the
// operation is among the engine's.
func (op *operation) abandon(err error) bool {
	if op.state.Load() != opPending {
		return false
	}
	op.err = err
	op.state.Store(opAbandoned)
	return true
}

// End implements backend.Operation. The engine's lock decides between this end and the library's.
func (op *operation) End(why error) error {
	err := *backend.AsFault(why)
	err.Text += ": the MPI library runs the collective and does not report which rank is missing"
	e := &op.c.p.engine
	e.mu.Lock()
	abandoned := slices.Contains(e.ops, &op.o) && op.abandon(&err)
	e.mu.Unlock()
	if abandoned {
		op.c.Break(&err)
	}
	for !op.Ready() { // the goroutine that completes it has not come to its end
		runtime.Gosched()
	}
	return nil
}

// Release implements backend.Operation. Nobody else uses an operation that is done: whoever completed it
// has unpinned its memory before.
func (op *operation) Release() {
	switch {
	case op.state.Load() != opDone:
	case op.persistent:
		if op.c.reenter() {
			op.free()
			op.c.leave()
		}
	default:
		e := &op.c.p.engine
		op.c, op.o.c, op.call, op.narrow, op.err = nil, nil, libmpi.Coll{}, nil, nil
		op.state.Store(opPending)
		e.colls.Put(op)
	}
}
