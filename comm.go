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
	MaxTag    = backend.MaxTag    // the largest tag; an MPI library may allow less (Caps.MaxTag)
)

const worldName = "world"

// Comm is a communicator: a group of ranks that exchange messages. A message sent on one
// communicator is never received on another. Init and Run make the first communicator; Dup, Split
// and similar methods derive others from it.
//
// Many goroutines can use a Comm at once, as with MPI_THREAD_MULTIPLE. Point-to-point operations
// may run concurrently. Collectives run one at a time; a second concurrent one is [ErrBusy].
type Comm struct {
	core  *core
	bound *backend.Bound // nil: no limit
	ctx   context.Context
}

// core is the state that all handles of one communicator share.
type core struct {
	id         uint32 // the context id: the same on all members, and unique on each of them
	bc         backend.Comm
	colls      backend.Collectives // nil: all collectives are schedules
	sharing    backend.Sharing     // nil: ranks share no memory
	recoverer  backend.Recovery    // nil: the job ends when a rank fails
	rank, size int
	maxTag     uint // the backend's largest tag
	name       string
	job        *job
	recorder   *flight.Recorder // the job's
	home       *Comm            // the handle that WithContext starts from

	closed   atomic.Bool
	changing atomic.Int32 // number of windows being made or closed collectively

	busy   atomic.Bool // a collective is being called; guards the fields below, down to mu
	call   backend.Call
	seq    uint32 // of the next collective
	runner *sched.Runner

	windowsMade int
	recovery    recovery

	mu       sync.Mutex
	handles  map[context.Context]*handle
	children int       // communicators made from this one, for their names
	windows  []*shared // the open windows
}

// handle is a Comm that WithContext made, and the function that stops watching its context.
type handle struct {
	comm *Comm
	stop func() bool
}

// job is the state that all communicators of one rank share.
type job struct {
	ctx      context.Context // the world's
	timeout  time.Duration   // of each operation; 0: none
	scheds   bool            // all collectives run as schedules
	process  bool            // this process is the rank, and Abort ends it
	ids      idSpace
	world    *core
	recorder *flight.Recorder // records the rank's operations
	// requests holds *backend.Request values for reuse. A backend keeps its own record with each.
	requests sync.Pool
	done     func() // called when the world has been closed; may be nil

	changing atomic.Int32 // sum of core.changing, plus the communicators being closed

	mu    sync.Mutex
	comms map[*core]struct{} // the open communicators
}

// newCore makes the shared part of a communicator.
func (j *job) newCore(bc backend.Comm, name string, id uint32) *core {
	k := &core{id: id, bc: bc, rank: bc.Rank(), size: bc.Size(), maxTag: uint(bc.Caps().MaxTag), name: name, job: j, recorder: j.recorder, runner: sched.New(bc)}
	k.call.Root = -1
	k.sharing, _ = bc.(backend.Sharing)
	k.recoverer, _ = bc.(backend.Recovery)
	if !j.scheds {
		k.colls, _ = bc.(backend.Collectives)
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

// Rank returns the number of the calling rank in c, from 0 to Size-1. It is Undefined for a nil
// communicator.
//
// Local.
func (c *Comm) Rank() int {
	if c == nil || c.core == nil {
		return Undefined
	}
	return c.core.rank
}

// Size returns the number of ranks of c. It is 0 for a nil communicator.
//
// Local.
func (c *Comm) Size() int {
	if c == nil || c.core == nil {
		return 0
	}
	return c.core.size
}

// Name returns the communicator's name. It is "world" for the world. The name of a derived
// communicator is its parent's name followed by how it was made, such as "world.split2".
//
// Local.
func (c *Comm) Name() string {
	if c == nil || c.core == nil {
		return ""
	}
	return c.core.name
}

// Backend returns the name of the backend that carries c: local, shm, tcp or mpi.
//
// Local.
func (c *Comm) Backend() string { return c.Caps().Backend }

// Caps describes the capabilities of a communicator's backend.
type Caps = backend.Caps

// Caps returns the capabilities of the backend. A nil communicator has the zero Caps.
//
// Local.
func (c *Comm) Caps() Caps {
	if c == nil || c.core == nil {
		return Caps{}
	}
	caps := c.core.bc.Caps()
	if c.core.colls == nil { // all collectives are schedules
		caps.DeviceColls = 0
	}
	return caps
}

// Diagnostics returns what the backend found and set when the process joined the job, one fact per
// line. It is nil if the backend reports nothing.
//
// Local.
func (c *Comm) Diagnostics() []string {
	if c == nil || c.core == nil {
		return nil
	}
	return c.core.bc.Diagnostics()
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

// WithContext returns a handle of the same communicator whose operations end when ctx does: with
// [ErrTimeout] at its deadline, with [ErrCanceled] if it is canceled. The context given to Init
// still applies too. A collective that ends in this way breaks the communicator. A point-to-point
// operation that has not matched is withdrawn; docs/mpi.md lists the exceptions on mpi.
//
// The handle need not be closed. Closing it closes the communicator.
//
// Local.
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

// join returns a context that ends when ctx or the world's context ends. It has the earlier of
// their deadlines.
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
		if world.Err() == context.Canceled { // both has the world's deadline already
			cancel(context.Cause(world))
		}
	})
	return both, func() { unlink(); end() }
}

// Abort ends the job. Every operation of every rank fails with an [ErrPeerLost] that names this
// rank and the code. Then this process ends with the code as its status, which is also the job's
// status. A code outside 1 to 255 counts as 1. Deferred functions do not run. Under [Run], where
// ranks are goroutines, Abort ends no process and returns nil.
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
		// Leave the reason for the launcher first: the others may end as soon as they learn of it.
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

// Close releases the communicator. Operations under way end with [ErrClosed], and so do later ones.
// Closing the world closes all communicators made from it and leaves the job, so that this rank
// does not count as lost. Closing again, or closing a nil communicator, does nothing.
//
// Close waits up to 5 s for windows that other goroutines are making or closing.
//
// Local. Operations of other ranks that still need this rank fail afterwards.
//
// Errors: [ErrBroken] from the world's Close on the mpi backend if an operation still waits in a
// blocking function of the library after 5 s.
func (c *Comm) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	k, j := c.core, c.core.job
	end := time.Now().Add(quiesceFor) // one deadline for all communicators together
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

// derived returns the open communicators except the world. Their order is the same on all ranks,
// because closing a communicator that has windows may wait for the other ranks.
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

// close closes a communicator. It waits for the communicator's windows until end.
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
	err := k.bc.Close()
	if k == j.world {
		j.recorder.Close()
		if j.done != nil {
			j.done()
		}
	}
	return err
}
