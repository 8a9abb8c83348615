package local

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// message is n bytes that depend on every argument.
func message(n, from, seq int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + from*31 + seq*101 + i>>8)
	}
	return b
}

var lengths = []int{0, 1, 8, 1000, shortMax, shortMax + 1, copyMax, copyMax + 1, 200_000}

// A synchronous send, and a long one, complete when the receive has matched; a
// short standard one at once.
func TestLongAndSynchronousSendsWaitForTheReceive(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		long := make([]byte, copyMax+1)
		if c.rank == 0 {
			short := c.isend([]byte{1}, 1, 0, backend.Standard)
			sync := c.isend([]byte{2}, 1, 1, backend.Synchronous)
			big := c.isend(long, 1, 2, backend.Standard)
			if !short.Ready() || sync.Ready() || big.Ready() {
				t.Errorf("complete before the receive: short %v, synchronous %v, long %v", short.Ready(), sync.Ready(), big.Ready())
			}
			c.sync(t)
			for _, r := range []*backend.Request{sync, big} {
				_, err := c.wait(t, r)
				must(t, err)
			}
			return
		}
		c.sync(t)
		for tag := range 3 {
			_, err := c.Recv(nil, long, 0, tag)
			must(t, err)
		}
	})
}

// A receive that ends keeps its buffer no longer reachable: with a message, at its deadline, and when another goroutine has
// taken it out of the cell.
func TestEndedReceiveKeepsNoBuffer(t *testing.T) {
	for name, during := range map[string]func(c, other *Comm){
		"message":  func(_, other *Comm) { must(t, other.Send(nil, []byte{1}, 0, 0, backend.Standard)) },
		"deadline": func(_, _ *Comm) { runtime.Gosched() },
		"locked":   func(c, _ *Comm) { c.me.lock(); c.me.mu.Unlock() },
	} {
		comms := New(2)
		c, other := comms[0].(*Comm), comms[1].(*Comm)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var ended atomic.Bool
		go func() {
			defer ended.Store(true)
			c.Recv(&backend.Bound{Ctx: ctx}, make([]byte, 1), 1, 0)
		}()
		for !ended.Load() {
			during(c, other)
		}
		cancel()
		if c.me.cell.buf != nil {
			t.Errorf("%s: the cell has the buffer", name)
		}
	}
}

// A receive whose message is still being copied ends soon after its deadline, and breaks the communicator.
func TestDeadlineEndsReceiveDuringCopy(t *testing.T) {
	c := New(2)[0].(*Comm)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Recv(&backend.Bound{Ctx: ctx}, make([]byte, 1), 1, 0)
		ended <- err
	}()
	var n *match.Node
	for n == nil { // until it is posted; the sender takes it, and copies
		c.me.mu.Lock()
		if n = c.me.posted.TakePosted(match.Env{Ctx: c.group.key.id, Source: 1}); n != nil {
			owner(n).long = true
		}
		c.me.mu.Unlock()
		runtime.Gosched()
	}
	cancel()
	c.Wake()
	select {
	case err := <-ended:
		if !errors.Is(err, backend.ErrCanceled) || c.Broken() == nil {
			t.Errorf("the receive: %v; the communicator was broken with %v", err, c.Broken())
		}
	case <-time.After(10 * time.Second):
		t.Error("the receive waits for the end of the copy")
	}
	owner(n).deliver(match.Env{Ctx: c.group.key.id, Source: 1}, []byte{1})
}

// Copies of unreceived messages have a limit; what is beyond it waits and is
// received all the same, in order.
func TestStoredMessagesAreLimited(t *testing.T) {
	ranks(t, 2, func(t testing.TB, c *Comm) {
		const n = storedMax/copyMax + 10
		if c.rank == 0 {
			waiting := 0
			var rs []*backend.Request
			for i := range n {
				rs = append(rs, c.isend(message(copyMax, 0, i), 1, 0, backend.Standard))
				if !rs[i].Ready() {
					waiting++
				}
			}
			if waiting != 10 {
				t.Errorf("%d sends wait, want 10", waiting)
			}
			c.sync(t)
			for _, r := range rs {
				_, err := c.wait(t, r)
				must(t, err)
			}
			return
		}
		c.sync(t)
		buf := make([]byte, copyMax)
		for i := range n {
			if _, err := c.Recv(nil, buf, 0, 0); err != nil || !bytes.Equal(buf, message(copyMax, 0, i)) {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if s := c.me.stored; s != 0 {
			t.Errorf("%d bytes are still counted as stored", s)
		}
	})
}

// A request that is complete, but whose Notify has not been called yet, cannot be
// canceled, and is notified once.
func TestCompleteRequestCannotBeCanceled(t *testing.T) {
	ranks(t, 1, func(t testing.TB, c *Comm) {
		notified := 0
		var inner backend.Request
		inner.Notify = func(*backend.Request) { notified++ }
		outer := backend.Request{Notify: func(*backend.Request) {
			inner.Begin()
			c.Isend(&inner, []byte{1}, 0, 0, backend.Standard)
			if inner.Ready() {
				t.Error("notified inside another Notify")
			}
			if c.Cancel(&inner) {
				t.Error("a message that was sent has been canceled")
			}
		}}
		outer.Begin()
		c.Isend(&outer, []byte{2}, 0, 0, backend.Standard)
		if !inner.Ready() || inner.Err != nil || notified != 1 {
			t.Errorf("ready %v, notified %d times, %v", inner.Ready(), notified, inner.Err)
		}
	})
}

// Requests driven by their Notify alone must not make the stack deeper with
// every step.
func TestNotifyDoesNotNest(t *testing.T) {
	const steps = 20_000
	comms := New(2)
	var deepest int
	var mu sync.Mutex
	finished := new(backend.Request)
	finished.Begin()
	left := steps
	var chain [2]func(*backend.Request)
	var bufs [2][1]byte
	var reqs [2]backend.Request
	for i := range 2 {
		chain[i] = func(r *backend.Request) {
			if r.Err != nil {
				return // the job is closed
			}
			var pcs [512]uintptr
			depth := runtime.Callers(0, pcs[:])
			mu.Lock()
			deepest = max(deepest, depth)
			left--
			end := left == 0
			mu.Unlock()
			if end {
				finished.Finish(backend.Status{}, nil)
				return
			}
			// Post the next receive and send to the other, which does the same.
			reqs[i].Begin()
			c := comms[i].(*Comm)
			c.Irecv(&reqs[i], bufs[i][:], 1-i, 0)
			must(t, c.Send(nil, []byte{1}, 1-i, 0, backend.Standard))
		}
		reqs[i].Notify = chain[i]
	}
	reqs[1].Begin()
	comms[1].Irecv(&reqs[1], bufs[1][:], 0, 0)
	reqs[0].Begin()
	comms[0].Irecv(&reqs[0], bufs[0][:], 1, 0)
	must(t, comms[0].Send(nil, []byte{1}, 1, 0, backend.Standard))
	for _, c := range comms {
		must(t, c.Await(nil, finished))
	}
	if deepest > 100 {
		t.Errorf("a stack of %d frames after %d steps", deepest, steps)
	}
	for _, c := range comms {
		c.Close()
	}
}
