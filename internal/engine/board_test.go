package engine

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// A rank that waits in a native collective finds that another one has begun a collective over messages with the
// same number, whether its message comes before or during the wait.
func TestWaitingCallIsComparedWithMessages(t *testing.T) {
	const seq = 5
	for _, before := range []bool{true, false} {
		world := mesh(t, 2)
		call := &backend.Call{Coll: backend.Barrier, Root: -1, Seq: seq}
		other := backend.Call{Coll: backend.Bcast, Form: backend.Nonblocking, Type: &backend.Datatype{ID: 1, Size: 8}, Count: 1}
		seen := backend.See(1, other.Fingerprint())
		body := make([]byte, backend.SeenSize)
		seen.Encode(body)
		if !before {
			world[0].Waits(call)
		}
		if err := world[1].Send(patient, body, 0, backend.CheckTag(seq), backend.Standard); err != nil {
			t.Fatal(err)
		}
		if before {
			until(t, "holding the message", world[0], func() bool {
				return locked(world[0], func(e *Engine) bool { return e.arrived.Len() > 0 })
			})
			world[0].Waits(call)
		}
		for r, c := range world {
			until(t, "told of the mismatch", c, func() bool { return c.brk.Load() != nil })
			if err := c.Over(); !errors.Is(err, backend.ErrMismatch) {
				t.Errorf("message before the wait: %v: rank %d: %v, want a mismatch", before, r, err)
			}
		}
		world[0].Waits(nil)
	}
}

// A call belongs to its caller once the wait has ended, while messages still arrive. The race detector sees it
// if the call is read then.
func TestCallIsNotReadAfterItsWait(t *testing.T) {
	c := mesh(t, 2)[0]
	end := make(chan struct{})
	go func() {
		defer close(end)
		for range 1000 {
			locked(c, func(e *Engine) bool { e.checkMixed(c.id, int32(backend.CheckTag(1)), nil); return true })
		}
	}()
	call := new(backend.Call)
	for range 1000 {
		*call = backend.Call{Coll: backend.Barrier, Seq: 1}
		c.Waits(call)
		c.Waits(nil)
	}
	<-end
}

type pending func() bool

func (p pending) Ready() bool { return p() }

// A rank arrives at a collective that one goroutine waits for, while another one polls and has not announced its
// sleep: nothing rings. The first must find out before the other one sleeps.
func TestArrivalBeforeSleepIsNoticed(t *testing.T) {
	c := mesh(t, 1)[0]
	e := c.e
	e.cfg.Yield = runtime.Gosched // so that a waiter polls
	var arrived, over atomic.Bool
	var looks atomic.Int32
	ends := make(chan error, 2)
	go func() {
		ends <- c.Await(patient, pending(func() bool {
			looks.Add(1)
			if e.crew.Sleeps() && !e.crew.Rests() {
				arrived.Store(true)
			}
			return over.Load()
		}))
	}()
	until(t, "leading", c, func() bool { return looks.Load() > 1 })
	go func() { ends <- c.Await(&backend.Bound{Timeout: patient.Timeout / 3}, pending(arrived.Load)) }()
	for !arrived.Load() {
		e.Poke()                     // so that the leader polls again
		time.Sleep(time.Millisecond) // poll
	}
	if err := <-ends; err != nil {
		t.Error(err)
	}
	over.Store(true)
	c.Wake()
	if err := <-ends; err != nil {
		t.Error(err)
	}
}
