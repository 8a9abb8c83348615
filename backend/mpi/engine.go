//go:build cgo && linux

package mpi

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// The engine has the requests that are in progress in the library, and completes them. One goroutine at a time tests them.
//
//	shared words   written by
//	reqs, ops      under mu: watch appends a request, take removes those that are complete
//	next, at, st   under mu: poll
//	dropped        under mu: drop, detach and take (cancel.go)
//	prepared       under mu: prepare and forget (nonblocking.go)
//	comms          under mu (retire.go)
//	closing        stop, once, under mu
//	queued         whoever adds a receive to a queue or removes it (queue.go)
//	internal       whoever begins or completes a message of a collective
//	poller         see background.go
//	stuck, wins    whoever begins and ends such a call, or makes and frees a window
//
// A request in progress is in one place: in a communicator's queue if it is a guarded receive that has not matched, else in
// ops. Before that it is in the hands of the goroutine that starts it, which looks afterwards whether the communicator has
// ended meanwhile (started).
//
// Invariant: the goroutine that takes a request out of its place, under that place's lock, decides alone how it ends: it is
// complete, its time is up (giveUp), or its communicator has ended (drop). Once closing is set, no request is tested or
// canceled any more.

// batch is how many requests are tested in one call.
const batch = 64

type engine struct {
	mu       sync.Mutex
	reqs     []libmpi.Request // what MPI tests; parallel to ops
	ops      []*op
	prepared map[*operation]struct{} // persistent collectives, whose buffers stay pinned between their starts
	dropped  int                     // operations whose fate is dropped
	pins     pins
	next     int // where the next round of tests starts
	at       [batch]int32
	st       [batch]libmpi.Status

	comms   comms
	tending sync.Mutex   // held by tend
	leaks   int          // under mu: what else could not be freed
	stuck   atomic.Int32 // blocking calls that can be abandoned, until they return
	wins    atomic.Int32 // windows not yet freed, of communicators that are not broken

	queued   atomic.Int32 // waiting guarded receives of all communicators
	internal atomic.Int32 // messages in progress that belong to collectives
	poller   atomic.Uint32
	closing  atomic.Bool // MPI may be finalized, or a thread may be taken out of a call

	free  sync.Pool // of *backend.Request
	colls sync.Pool // of *operation: nonblocking collectives
}

// leak notes that something cannot be freed.
func (e *engine) leak() {
	e.mu.Lock()
	e.leaks++
	e.mu.Unlock()
}

// request returns a request for an internal operation. done takes it back once it is complete.
func (e *engine) request() *backend.Request {
	if r, ok := e.free.Get().(*backend.Request); ok {
		return r
	}
	return new(backend.Request)
}

func (e *engine) done(r *backend.Request) { e.free.Put(r) }

// needsPoll reports whether something is in progress that only poll advances: a guarded receive, or a collective
// that sends its next message when one has arrived. A call that blocks in the library would stop its progress, and
// another rank may wait for that progress before it takes part in the call.
func (e *engine) needsPoll() bool { return e.queued.Load() > 0 || e.internal.Load() > 0 }

// watch adds a request of MPI.
func (e *engine) watch(o *op) {
	counted := o.counted // another goroutine may complete o as soon as the lock is free
	e.mu.Lock()
	e.reqs = append(e.reqs, o.h)
	e.ops = append(e.ops, o)
	e.keep(o)
	e.mu.Unlock()
	if counted {
		e.inBackground()
	}
}

// finished is an operation that MPI reports as complete.
type finished struct {
	o   *op
	st  libmpi.Status
	err error // the status's error
}

// claim takes the lock for a call of the library. It returns false if another goroutine polls, or if MPI may be finalized.
func (e *engine) claim() bool {
	if !e.mu.TryLock() {
		return false
	}
	if e.closing.Load() {
		e.mu.Unlock()
		return false
	}
	return true
}

// poll makes progress if it can. It returns true if it has completed a request.
//
//  1. It gives up the receives that drop has ended and whose time is up.
//  2. It has messages that have arrived received by the guarded receives that wait for them.
//  3. It tests the next requests, up to batch of them and spins times while none is complete.
//  4. It ends those that are complete.
//
// Steps 1, 2 and 4 complete requests without the lock, so after the first two poll claims it again.
func (e *engine) poll(spins int) bool {
	if !e.claim() {
		return false
	}
	if e.dropped > 0 {
		late := e.overdue(time.Now())
		e.mu.Unlock()
		end(late)
		if !e.claim() {
			return len(late) > 0
		}
	}
	if e.queued.Load() > 0 {
		comms := e.comms.open
		e.mu.Unlock()
		for _, c := range comms {
			c.match()
		}
		if !e.claim() {
			return false
		}
		spins = 1
	}
	n := len(e.reqs)
	if n == 0 {
		e.mu.Unlock()
		return false
	}
	if n > batch {
		spins = 1
	}
	if e.next >= n {
		e.next = 0
	}
	from := e.next
	to := min(from+batch, n)
	e.next = to
	done, code := libmpi.Testsome(e.reqs[from:to], spins, e.at[:], e.st[:])
	if code != 0 {
		comms := e.comms.open
		e.mu.Unlock()
		for _, c := range comms {
			c.looked(code)
		}
		return false
	}
	if done == 0 {
		e.mu.Unlock()
		return false
	}
	if done == 1 { // the usual case: clearing many records would take longer than all else
		var fin [1]finished
		e.complete(fin[:], from)
		return true
	}
	var fin [batch]finished
	e.complete(fin[:done], from)
	return true
}

// complete ends the operations that Testsome has reported as complete, of those from an index on. fin
// is room for them. The lock is held, and released.
func (e *engine) complete(fin []finished, from int) {
	for i := range fin {
		f := finished{o: e.ops[from+int(e.at[i])], st: e.st[i]}
		if f.st.Error != 0 {
			f.err = libmpi.Error(f.st.Error) // here: once the lock is free MPI may be finalized
		}
		f.o.h = e.reqs[from+int(e.at[i])]
		fin[i] = f
	}
	e.take(fin, from)
	e.mu.Unlock()
	for i := range fin {
		fin[i].o.finish(&fin[i].st, fin[i].err)
	}
}

// take removes complete operations from the lists. The lock is held.
func (e *engine) take(fin []finished, from int) {
	if len(fin) == 0 {
		return
	}
	for i := range fin {
		e.ops[from+int(e.at[i])] = nil
		e.release(fin[i].o)
		if fin[i].o.fate == dropped {
			e.dropped--
		}
	}
	j := 0
	for i, o := range e.ops {
		if o != nil {
			e.ops[j], e.reqs[j] = o, e.reqs[i]
			j++
		}
	}
	clear(e.ops[j:])
	e.ops, e.reqs = e.ops[:j], e.reqs[:j]
	e.next = 0
}

// stop ends all progress before MPI is finalized. It waits for a round in progress, and gives up what is left.
func (e *engine) stop() {
	e.mu.Lock()
	e.closing.Store(true)
	late := e.overdue(time.Time{})
	e.mu.Unlock()
	end(late)
}

// owed reports whether MPI still has abandoned sends.
func (e *engine) owed() bool {
	return e.any(func(o *op) bool { return o.req == nil && o.coll == nil && !o.receives })
}

// has reports whether MPI still has operations of a communicator.
func (e *engine) has(c *comm) bool { return e.any(func(o *op) bool { return o.c == c }) }

func (e *engine) any(is func(*op) bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.ops, is)
}

// discarding returns how many bytes are being received that nobody wants, and at least 1 for each message.
func (e *engine) discarding() (bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, o := range e.ops {
		if o.fate == unwanted {
			bytes += len(o.buf) + 1
		}
	}
	return bytes
}
