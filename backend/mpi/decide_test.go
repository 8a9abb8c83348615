//go:build cgo && linux

package mpi

import (
	"errors"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/libmpi"
	"github.com/cohort-hpc/cohort/internal/mpifind"
	"github.com/cohort-hpc/cohort/internal/mpiquirks"
	"github.com/cohort-hpc/cohort/internal/test/inside"
)

// pendingRequest returns a request whose operation is in the engine's list.
func pendingRequest(c *comm) (*backend.Request, *op) {
	r := new(backend.Request)
	r.Begin()
	o := c.p.engine.op(r, c, nil, 1)
	c.p.engine.watch(o)
	return r, o
}

func newTestComm() *comm { return &comm{p: &process{}, size: 1} }

// A request is given up if the engine still has its operation. What the library reports later does not reach it, and the
// next use of the request gets another record.
func TestGivenUpRequestIsTheCallers(t *testing.T) {
	c := newTestComm()
	r, o := pendingRequest(c)
	if !c.p.engine.giveUp(r) {
		t.Fatal("the request cannot be given up")
	}
	r.Complete(backend.Status{}, backend.ErrTimeout)
	c.p.engine.ops, c.p.engine.reqs = nil, nil
	o.finish(&libmpi.Status{Flag: 1}, nil)
	if !errors.Is(r.Err, backend.ErrTimeout) {
		t.Errorf("the library's end reached the request: %v", r.Err)
	}
	r.Begin()
	if p := c.p.engine.op(r, c, nil, 1); p == o {
		t.Error("the record that MPI had is used again")
	}
}

// A request that another goroutine is completing is not given up: giveUp waits for its result.
func TestRequestThatCompletesIsNotGivenUp(t *testing.T) {
	c := newTestComm()
	r, o := pendingRequest(c)
	e := &c.p.engine
	e.mu.Lock() // the other goroutine has taken it out of the list
	e.ops, e.reqs = nil, nil
	e.mu.Unlock()
	given := make(chan bool)
	go func() { given <- e.giveUp(r) }()
	inside.Wait("(*engine).giveUp")
	o.finish(&libmpi.Status{Flag: 1}, nil)
	if <-given || r.Err != nil {
		t.Errorf("given up, error %v", r.Err)
	}
}

// The same for Cancel, which finds the request neither in a queue nor in the list.
func TestCancelLeavesNoRequestBetweenTwoPlaces(t *testing.T) {
	for _, receives := range []bool{false, true} {
		c := newTestComm()
		c.p.lib.guard = true
		r, o := pendingRequest(c)
		o.receives = receives
		c.p.engine.ops, c.p.engine.reqs = nil, nil
		ready := make(chan bool)
		go func() {
			c.Cancel(r)
			ready <- r.Ready()
		}()
		inside.Wait("(*comm).Cancel")
		o.complete(backend.Status{}, nil)
		if !<-ready {
			t.Errorf("receives %v: the request is in no place, and Cancel has returned", receives)
		}
	}
}

// The same for a collective of the library: End leaves one that another goroutine is completing alone, and does not
// break its communicator.
func TestCollectiveThatCompletesIsNotEnded(t *testing.T) {
	c := newTestComm()
	op := &operation{c: c}
	op.o.c, op.o.coll = c, op
	ended := make(chan error)
	go func() { ended <- op.End(&backend.Fault{Sentinel: backend.ErrTimeout, Text: "made up"}) }()
	inside.Wait("(*operation).End")
	op.finish(nil)
	if err := <-ended; err != nil || op.Err() != nil || c.usable() != nil {
		t.Errorf("End %v, the operation %v, the communicator %v", err, op.Err(), c.usable())
	}
}

// drop ends sends at once. A receive ends when the library has withdrawn it, or at the latest when its time is up.
func TestDroppedReceiveEndsOnce(t *testing.T) {
	c, why := newTestComm(), &backend.Fault{Sentinel: backend.ErrClosed, Text: "made up"}
	e := &c.p.engine
	send, _ := pendingRequest(c)
	var receives [3]*backend.Request
	var ops [3]*op
	for i := range receives {
		receives[i], ops[i] = pendingRequest(c)
		ops[i].receives, ops[i].canceled = true, true // no library is asked
	}
	c.drop(why)
	if !send.Ready() || !errors.Is(send.Err, why.Sentinel) {
		t.Errorf("the send: ready %v, %v", send.Ready(), send.Err)
	}
	for i, st := range []libmpi.Status{{Flag: 2}, {Flag: 1}} { // withdrawn; its message had arrived
		if receives[i].Ready() {
			t.Error("a receive has ended while the library has its buffer")
		}
		for at, o := range e.ops {
			if o == ops[i] {
				e.at[0], e.st[0] = int32(at), st
			}
		}
		e.mu.Lock()
		e.complete(make([]finished, 1), 0)
	}
	if !errors.Is(receives[0].Err, why.Sentinel) || receives[1].Err != nil || e.dropped != 1 {
		t.Errorf("withdrawn: %v, arrived: %v, %d left", receives[0].Err, receives[1].Err, e.dropped)
	}
	end(e.overdue(time.Now()))
	if receives[2].Ready() {
		t.Error("a receive has ended before its time is up")
	}
	end(e.overdue(time.Now().Add(time.Hour)))
	if !errors.Is(receives[2].Err, why.Sentinel) || e.dropped != 0 {
		t.Errorf("overdue: %v, %d left", receives[2].Err, e.dropped)
	}
	if got := c.gate.Tally(); got != -1 {
		t.Errorf("%d messages counted, want the one that has arrived", got)
	}
}

// A round of tests that has released the engine's lock to end an overdue receive does not call the library again once
// the engine has stopped: MPI may be finalized by then.
func TestPollLeavesLibraryAloneOnceStopped(t *testing.T) {
	c := newTestComm()
	e := &c.p.engine
	r, o := pendingRequest(c)
	o.receives, o.canceled = true, true
	c.drop(backend.CommClosed)
	o.until = time.Time{}
	kept, _ := pendingRequest(c)
	r.Notify = func(*backend.Request) { e.stop() }
	if !e.poll(1) {
		t.Error("no request has completed")
	}
	if !errors.Is(r.Err, backend.ErrClosed) || kept.Ready() {
		t.Errorf("the overdue receive: %v; the other is ready: %v", r.Err, kept.Ready())
	}
}

// Open MPI 6 may crash in an Allreduce in place. The short way to the library leaves it to the long one, which copies.
func TestAllreduceInPlaceGoesNoShortWay(t *testing.T) {
	r := mpiquirks.ParseRelease("6.0.0")
	q := mpiquirks.QuirksIn(mpiquirks.Of(mpifind.Unknown, "Open MPI", r), r)
	c := newTestComm()
	c.p.lib.colls = newUsableColls(q)
	typ := datatype.Number(backend.Int64)
	c.p.types.kinds[backend.Int64], c.p.ops.predefined[backend.OpSum] = 1, 1 // as if the library were loaded
	call := &backend.Call{Coll: backend.Allreduce, Type: typ, Op: datatype.Op(backend.OpSum, typ), Count: 1, Recv: make([]byte, 8), InPlace: true}
	if _, made := c.frequent(0, call); made {
		t.Error("the library's call is made in place")
	}
}
