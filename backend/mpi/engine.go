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

// batch is how many requests are tested in one call.
const batch = 64

// engine holds the process's requests in progress and completes them. One goroutine at a time tests
// them.
type engine struct {
	mu      sync.Mutex
	reqs    []libmpi.Request // what MPI tests; parallel to ops
	ops     []*op
	comms   []*comm      // those that can have guarded receives; replaced, never modified
	leaks   int          // communicators that could not be freed
	unfreed []*comm      // those of them that may have messages in flight
	inUse   []*comm      // closed ones that a call may still use
	ended   bool         // the world is closed, and so is every communicator
	stuck   atomic.Int32 // blocking calls that can be abandoned, until they return
	wins    atomic.Int32 // windows not yet freed, of communicators that are not broken
	next    int          // where the next round of tests starts
	at      [batch]int32
	st      [batch]libmpi.Status

	queued     atomic.Int32 // waiting guarded receives of all communicators
	internal   atomic.Int32 // messages in progress that belong to collectives
	background bool         // the thread level lets another goroutine match them
	matching   atomic.Bool
	closing    atomic.Bool

	free  sync.Pool // of *backend.Request
	colls sync.Pool // of *operation: nonblocking collectives
}

func (e *engine) add(c *comm) {
	e.mu.Lock()
	e.comms = append(slices.Clip(e.comms), c)
	ended := e.ended
	e.mu.Unlock()
	if ended {
		e.shut(c)
	}
}

// shut closes a communicator that the program left open.
func (e *engine) shut(c *comm) {
	if c.state.Swap(closed) == closed {
		return
	}
	c.drop(closed.err)
	e.linger(c)
	e.keepComm(c)
}

// keepComm records a closed communicator that is never freed.
func (e *engine) keepComm(c *comm) {
	e.leak()
	e.mu.Lock()
	e.unfreed = append(e.unfreed, c)
	e.mu.Unlock()
}

// shutAll closes the communicators that are open, and those made from now on.
func (e *engine) shutAll() {
	e.mu.Lock()
	e.ended = true
	comms := e.comms
	e.mu.Unlock()
	for _, c := range comms {
		e.shut(c)
	}
}

func (e *engine) remove(c *comm) {
	e.mu.Lock()
	e.comms = slices.DeleteFunc(slices.Clone(e.comms), func(d *comm) bool { return d == c })
	e.mu.Unlock()
}

func (e *engine) leak() {
	e.mu.Lock()
	e.leaks++
	e.mu.Unlock()
}

// leaked reports whether there are communicators that could not be freed.
func (e *engine) leaked() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaks > 0
}

// linger records a closed communicator that a call may still use.
func (e *engine) linger(c *comm) {
	e.mu.Lock()
	e.inUse = append(e.inUse, c)
	e.mu.Unlock()
}

// left waits until no call uses a closed communicator and all abandoned calls have returned. It
// reports whether that happened in time.
func (e *engine) left(end time.Time) bool {
	for i := 0; ; i++ {
		e.mu.Lock()
		if i == len(e.inUse) {
			e.mu.Unlock()
			return none(&e.stuck, end) // last: a call in a communicator can be abandoned
		}
		c := e.inUse[i]
		e.mu.Unlock()
		if !c.left(end) {
			return false
		}
	}
}

// kept holds the operations that the library still had when a world was closed. Their buffers stay
// pinned, so they must stay reachable.
var kept struct {
	mu  sync.Mutex
	ops []*op
}

func (e *engine) keep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	kept.mu.Lock()
	defer kept.mu.Unlock()
	kept.ops = append(kept.ops, e.ops...)
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
	e.mu.Lock()
	e.reqs = append(e.reqs, o.h)
	e.ops = append(e.ops, o)
	if e.closing.Load() {
		kept.mu.Lock()
		kept.ops = append(kept.ops, o)
		kept.mu.Unlock()
	}
	e.mu.Unlock()
}

// finished is an operation that MPI reports as complete.
type finished struct {
	o   *op
	st  libmpi.Status
	err error // the status's error
}

// poll makes progress if it can. It tries up to spins times while there is none.
func (e *engine) poll(spins int) {
	if !e.mu.TryLock() {
		return // another goroutine polls
	}
	if e.closing.Load() {
		e.mu.Unlock()
		return
	}
	if e.queued.Load() > 0 {
		comms := e.comms
		e.mu.Unlock()
		for _, c := range comms {
			c.match()
		}
		if !e.mu.TryLock() {
			return
		}
		if e.closing.Load() {
			e.mu.Unlock()
			return
		}
		spins = 1
	}
	n := len(e.reqs)
	if n == 0 {
		e.mu.Unlock()
		return
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
	if code != 0 || done == 0 {
		e.mu.Unlock()
		return
	}
	if done == 1 { // the usual case: clearing many records would take longer than all else
		var fin [1]finished
		e.complete(fin[:], from)
		return
	}
	var fin [batch]finished
	e.complete(fin[:done], from)
}

// complete ends the operations that Testsome has reported as complete, of those from an index on. fin
// is room for them. The lock is held, and released.
func (e *engine) complete(fin []finished, from int) {
	var open finished // one that failed without completing; a value, to avoid an allocation
	n := 0
	for i := range fin {
		f := finished{o: e.ops[from+int(e.at[i])], st: e.st[i]}
		if f.st.Error != 0 {
			f.err = libmpi.Error(f.st.Error) // here: once the lock is free MPI may be finalized
			if libmpi.Undecided(f.st.Error) {
				open = f
				continue
			}
		}
		f.o.h = e.reqs[from+int(e.at[i])]
		e.at[n], fin[n] = e.at[i], f
		n++
	}
	e.take(fin[:n], from)
	e.mu.Unlock()
	for i := range n {
		fin[i].o.finish(&fin[i].st, fin[i].err)
	}
	if open.o != nil {
		// The library still has it and its buffer. Breaking the communicator ends it here.
		_ = open.o.c.noteFailure(open.err)
	}
}

// take removes complete operations from the lists. The lock is held.
func (e *engine) take(fin []finished, from int) {
	if len(fin) == 0 {
		return
	}
	for i := range fin {
		e.ops[from+int(e.at[i])] = nil
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

// stop ends all progress before MPI is finalized. It waits for a round in progress.
func (e *engine) stop() {
	e.mu.Lock()
	e.closing.Store(true)
	e.mu.Unlock()
}

// owed reports whether MPI still has abandoned sends.
func (e *engine) owed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.ContainsFunc(e.ops, func(o *op) bool { return o.req == nil && o.coll == nil && !o.receives })
}

// sent gives a communicator's sends a moment to complete. Those that nobody waits for may be
// complete without having been tested.
func (e *engine) sent(c *comm) {
	for end := time.Now().Add(grace); ; yield() {
		e.mu.Lock()
		under := slices.ContainsFunc(e.ops, func(o *op) bool { return o.c == c && o.coll == nil && !o.receives })
		e.mu.Unlock()
		if !under || time.Now().After(end) {
			return
		}
		e.poll(spins)
	}
}

// notify sends a notice without waiting for it.
func (e *engine) notify(c *comm, notice []byte, dest int) {
	o := &op{c: c, buf: notice}
	o.pin()
	var st libmpi.Status
	if code := c.ctl.Isend(notice, dest, c.p.folds.notice(), false, &o.h, &st); code != 0 || st.Flag != 0 {
		o.complete(backend.Status{}, nil)
		return
	}
	e.watch(o)
}
