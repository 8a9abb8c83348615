package cohort

import (
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// Special ranks and tags (MPI-4.1 section 2.5.4).
const (
	AnySource = backend.AnySource // receive from any rank
	ProcNull  = backend.ProcNull  // a partner that does not exist: sends and receives do nothing
	AnyTag    = -1                // receive any tag
	Undefined = -32766            // no color, no rank, no count
	MaxTag    = backend.MaxTag    // the largest tag; an MPI library's may be smaller (Caps.MaxTag)
)

const worldName = "world"

// Comm is a communicator: a group of ranks and a context in which their messages
// match only each other. It is made by Init or Run, and from another by Dup,
// Split and their like.
//
// A Comm can be used by many goroutines at once as MPI_THREAD_MULTIPLE defines
// it: any mix of point-to-point operations, and collectives from one goroutine
// at a time (ErrBusy otherwise).
type Comm struct {
	core  *core
	bound *backend.Bound // nil: no limit
	ctx   context.Context
}

// core is what all handles of one communicator share.
type core struct {
	id         uint32 // unique among communicators that share a rank, and the same on all of theirs
	bc         backend.Comm
	native     backend.Native  // nil: all collectives are schedules
	planner    backend.Planner // native, if it leaves checks to this layer
	starter    backend.Starter // nil: the nonblocking and persistent ones are schedules
	rank, size int
	maxTag     uint // what the backend's tags allow
	name       string
	job        *job
	recorder   *flight.Recorder // the job's
	home       *Comm            // the handle that WithContext starts from

	closed   atomic.Bool
	changing atomic.Int32 // windows that are being made, or closed together

	busy   atomic.Bool // a collective is being called; guards what follows
	call   backend.Call
	seq    uint32 // of the next collective
	runner *sched.Runner

	windowsMade int
	recovery    *recovery // nil until Agree or Shrink is called; made under mu

	// Of what the library does itself, beneath Agree and Shrink.
	shrinking bool        // a Shrink has not ended, or its time ran out
	meeting   flight.Kind // what has not; 0: nothing
	meetings  uint32      // how many have begun

	mu       sync.Mutex
	handles  map[context.Context]*handle
	children int       // communicators made from this one, for their names
	windows  []*shared // not closed
}

// handle is a Comm that WithContext made and what ends its watch.
type handle struct {
	comm *Comm
	stop func() bool
}

// job is what all communicators of one rank share.
type job struct {
	ctx      context.Context // the world's
	timeout  time.Duration   // of each operation; 0: none
	scheds   bool            // all collectives run as schedules
	process  bool            // this process is the rank, and ends with it
	ids      idSpace
	world    *core
	recorder *flight.Recorder // what the rank's operations are noted in
	// requests has backend requests to be used again (of *backend.Request). A
	// backend keeps its own record with each.
	requests sync.Pool
	done     func() // called when the world has been closed; may be nil

	changing atomic.Int32 // core's of all communicators, and those that are being closed themselves

	mu    sync.Mutex
	comms map[*core]struct{} // the open communicators
}

// newCore makes the shared part of a communicator.
func (j *job) newCore(bc backend.Comm, name string, id uint32) *core {
	k := &core{id: id, bc: bc, rank: bc.Rank(), size: bc.Size(), maxTag: uint(bc.Caps().MaxTag), name: name, job: j, recorder: j.recorder, runner: sched.New(bc)}
	k.call.Root = -1
	if !j.scheds {
		k.native, _ = bc.(backend.Native)
		k.planner, _ = bc.(backend.Planner)
		k.starter, _ = bc.(backend.Starter)
	}
	k.home = &Comm{core: k, ctx: j.ctx, bound: j.newBound(j.ctx)}
	leader := 0
	if id != 0 {
		leader = bc.WorldRank(0)
	}
	j.recorder.Comm(id, name, k.size, k.rank, leader)
	j.mu.Lock()
	j.comms[k] = struct{}{}
	j.mu.Unlock()
	return k
}

// newBound returns the limits of operations under ctx, nil if there are none.
func (j *job) newBound(ctx context.Context) *backend.Bound {
	b := &backend.Bound{Ctx: ctx, Timeout: j.timeout}
	if !b.Limited() {
		return nil
	}
	return b
}

// Rank returns the number of the calling rank in c, 0 to Size-1; Undefined for a
// nil communicator.
func (c *Comm) Rank() int {
	if c == nil || c.core == nil {
		return Undefined
	}
	return c.core.rank
}

// Size returns the number of ranks of c; 0 for a nil communicator.
func (c *Comm) Size() int {
	if c == nil || c.core == nil {
		return 0
	}
	return c.core.size
}

// Name returns the communicator's name: "world", and for one made from another
// that one's name and how it was made, such as "world.split2".
func (c *Comm) Name() string {
	if c == nil || c.core == nil {
		return ""
	}
	return c.core.name
}

// Backend returns the name of the backend that carries c: local, shm, tcp or
// mpi.
func (c *Comm) Backend() string { return c.Caps().Backend }

// Caps says what a communicator's backend does itself.
type Caps = backend.Caps

// Caps returns what the backend does itself.
func (c *Comm) Caps() Caps {
	if c == nil || c.core == nil {
		return Caps{}
	}
	caps := c.core.bc.Caps()
	if c.core.native == nil { // all collectives are schedules
		caps.DeviceColls = 0
	}
	return caps
}

// Diagnostics returns what the backend found and set when the job was joined,
// one fact a line; nil if it has nothing to tell.
func (c *Comm) Diagnostics() []string {
	if c == nil || c.core == nil {
		return nil
	}
	if d, ok := c.core.bc.(backend.Diagnoser); ok {
		return d.Diagnostics()
	}
	return nil
}

// open returns ErrComm for a nil communicator and ErrClosed for a closed one.
func (c *Comm) open() error {
	if c == nil || c.core == nil {
		return fault(ErrComm, "the communicator is nil")
	}
	if c.core.closed.Load() {
		return fault(ErrClosed, "the communicator is closed")
	}
	return nil
}

// failed wraps the error of an operation.
func (c *Comm) failed(op string, peer, tag int, err error) error {
	err = c.record(op, err)
	return &OpError{Op: op, Comm: c.Name(), Rank: c.Rank(), Peer: peer, Tag: tag, Err: err}
}

// WithContext returns a handle of the same communicator whose operations end
// when ctx does: with [ErrTimeout] at its deadline, with [ErrCanceled] if it is
// canceled. The context given to Init still governs it as well. A collective
// that ends so breaks the communicator; a point-to-point operation that had not
// matched is taken back.
//
// The handle needs no closing of its own; Close on it closes the communicator.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil || c.core == nil {
		return c
	}
	k := c.core
	if ctx == nil || ctx == k.job.ctx || ctx.Done() == nil {
		return k.home
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.handles[ctx]; h != nil {
		return h.comm
	}
	both, cancel := join(ctx, k.job.ctx)
	h := &handle{comm: &Comm{core: k, ctx: both, bound: k.job.newBound(both)}}
	if k.closed.Load() {
		cancel()
		return h.comm // every operation gives ErrClosed
	}
	if k.handles == nil {
		k.handles = make(map[context.Context]*handle)
	}
	k.handles[ctx] = h
	stop := context.AfterFunc(both, func() {
		k.bc.Wake()
		k.mu.Lock()
		if k.handles[ctx] == h {
			delete(k.handles, ctx)
		}
		k.mu.Unlock()
	})
	h.stop = func() bool {
		stopped := stop()
		cancel()
		return stopped
	}
	return h.comm
}

// join returns a context that ends when ctx or the world's ends, the deadline of
// either being a deadline of both.
func join(ctx, world context.Context) (context.Context, func()) {
	if world.Done() == nil {
		return ctx, func() {}
	}
	both, cancel := context.WithCancelCause(ctx)
	end := func() { cancel(nil) }
	if d, ok := world.Deadline(); ok {
		timed, stop := context.WithDeadline(both, d)
		both = timed
		end = func() { stop(); cancel(nil) }
	}
	unlink := context.AfterFunc(world, func() {
		if world.Err() == context.Canceled { // the deadline is both's own
			cancel(context.Cause(world))
		}
	})
	return both, func() { unlink(); end() }
}

// Abort ends the job: every operation of every rank fails with [ErrPeerLost] that names this rank
// and the code. It then ends this process with the code as its status, which is the job's status
// too; a code outside 1 to 255 counts as 1. Deferred functions do not run. Under [Run], where ranks
// are goroutines, Abort ends no process and returns nil.
//
// Local: one rank is enough.
//
// Errors: [ErrComm], [ErrClosed]. Abort has no deadline.
func (c *Comm) Abort(code int) error {
	if err := c.open(); err != nil {
		return c.failed("abort", Undefined, Undefined, err)
	}
	j := c.core.job
	if j.process {
		if code < 1 || code > 255 {
			code = 1
		}
		// The others may end as soon as they receive the news: leave the reason for the launcher first.
		j.publishAbort(code, osEnv)
	}
	if err := c.core.bc.Abort(code); err != nil {
		return c.failed("abort", Undefined, Undefined, err)
	}
	if j.process {
		os.Exit(code)
	}
	return nil
}

// Close releases the communicator. Operations under way end with [ErrClosed], as
// do later ones. Closing the world leaves the job in good order and closes all
// communicators made from it. Closing twice, or a nil communicator, does nothing.
// On the mpi backend an operation that waits in a blocking function of the library does
// not end; the world's Close then returns [ErrBroken] after 5 s. A window that another
// goroutine is making or closing is waited for, 5 s at most.
//
// Local, but what the other ranks still want of this one fails afterwards.
func (c *Comm) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	k, j := c.core, c.core.job
	end := time.Now().Add(quiesceFor) // one for all: where each waited by itself the world's Close would take as often as long
	if k == j.world {
		for _, d := range j.derived() {
			d.close(end)
		}
	}
	if err := k.close(end); err != nil {
		return c.failed("close", Undefined, Undefined, err)
	}
	return nil
}

// derived returns the open communicators but for the world, in an order that is the
// same on all ranks: closing may wait for the others where there are windows.
func (j *job) derived() []*core {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*core
	for k := range j.comms {
		if k != j.world {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, func(a, b *core) int { return cmp.Compare(a.id, b.id) })
	return all
}

// close closes a communicator, and until end waits for its windows.
func (k *core) close(end time.Time) error {
	j := k.job
	if k != j.world {
		j.changing.Add(1) // first, so that the world's Close waits for it or closes k itself
		defer j.changing.Add(-1)
	}
	if k.closed.Swap(true) {
		return nil
	}
	k.mu.Lock()
	handles := k.handles
	k.handles = nil
	k.mu.Unlock()
	for _, h := range handles {
		h.stop()
	}
	j.mu.Lock()
	delete(j.comms, k)
	j.mu.Unlock()
	k.closeWindows(end)
	k.mu.Lock()
	r := k.recovery
	k.mu.Unlock()
	r.close()
	err := k.bc.Close()
	if k == j.world {
		j.recorder.Close()
		if j.done != nil {
			j.done()
		}
	}
	return err
}
