package comm

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/word"
)

// The special values of package cohort.
const (
	Undefined = backend.Undefined
	AnyTag    = -1
)

// Comm is a handle of a communicator. It may be nil. Any number of goroutines may use one.
type Comm struct {
	core  *core
	bound *backend.Bound  // nil: no limit
	ctx   context.Context // what WithContext got, or the world's

	typ   *backend.Datatype // see Part
	total int
}

// Part returns a handle for blocking collectives that carry one piece of a longer collective of total elements; with 0
// they are whole. If typ is not nil, ranks compare it instead of the type of the elements, which has the same layout.
// The deadlines are those of c.
func (c *Comm) Part(typ *backend.Datatype, total int) Comm {
	return Comm{core: c.core, bound: c.bound, ctx: c.ctx, typ: typ, total: total}
}

// core is the state that all handles of one communicator share.
type core struct {
	id         uint32 // the context id: the same on all members, and unique on each of them
	bc         backend.Comm
	colls      backend.Collectives // nil: all collectives are schedules
	sharing    backend.Sharing     // nil: ranks share no memory
	recoverer  backend.Recovery    // nil: the job ends when a rank fails
	devices    backend.Devices     // nil: the processor reads all buffers
	withdrawer backend.Withdrawer  // nil: Cancel decides alone whether a send has matched
	rank, size int
	maxTag     uint // the backend's largest tag
	pieces     int  // the shortest message that is packed while it is sent; 0: none
	name       string
	job        *job
	recorder   *flight.Recorder // the job's
	plain      *Comm            // the handle without a context of its own
	reported   atomic.Bool      // an operation has returned a mismatch of calls
	shrunk     bool             // a Shrink has made a communicator of the others; guarded by job.noting

	life life // whoever takes it guards the fields below, down to mu

	call                   backend.Call
	ticket                 flight.Ticket // of the record of call, while it is under way
	seq                    uint32        // of the next collective
	runner                 *sched.Runner
	counts                 []int64       // that exchangeCounts sends and receives
	sendDispls, recvDispls []int         // of a blocking call without displacements
	outstanding            []outstanding // the nonblocking and persistent collectives, except for some that are over

	neighbors   *backend.Neighbors // nil: it is neither a grid nor a graph
	windowsMade int
	recovery    recovery

	mu       word.Mutex
	handles  map[context.Context]*handle
	children int              // communicators made from this one, for their names
	attempts uint64           // of this rank in CreateGroup
	claims   map[[2]int]claim // by member and tag: what the leader of a CreateGroup has not answered
	windows  []*windowCore    // the open windows that stand on it
	swept    bool             // Close has the windows: none is added any more
}

// handle is a Comm that WithContext made. stop ends the watch of its context, and cancel ends its bound's context, which
// no operation may read any more.
type handle struct {
	comm   *Comm
	stop   func() bool
	cancel func()
}

// newCore makes the shared part of a communicator. It returns nil if the world's Close lets none be made any more.
func (j *job) newCore(bc backend.Comm, name string, id uint32) *core {
	caps := bc.Caps()
	k := &core{
		id: id, bc: bc, rank: bc.Rank(), size: bc.Size(), maxTag: uint(caps.MaxTag), pieces: caps.Pieces, name: name,
		job: j, recorder: j.recorder, runner: sched.New(bc),
	}
	k.runner.CheckAll = j.Check
	k.call.Root = -1
	k.sharing, _ = bc.(backend.Sharing)
	k.recoverer, _ = bc.(backend.Recovery)
	k.devices, _ = bc.(backend.Devices)
	k.withdrawer, _ = bc.(backend.Withdrawer)
	if !j.Schedules {
		k.colls, _ = bc.(backend.Collectives)
	} else if k.devices != nil {
		k.devices = scheduled{k.devices}
	}
	k.plain = &Comm{core: k, ctx: j.ctx, bound: j.newBound(j.ctx)}
	leader := 0
	if id != 0 {
		leader = bc.WorldRank(0)
	}
	j.recorder.Comm(id, name, k.size, k.rank, leader)
	j.mu.Lock()
	defer j.mu.Unlock()
	if id != 0 && !j.open.Enter() {
		return nil
	}
	j.comms[k] = struct{}{}
	return k
}

// nobody is the core of a nil communicator.
var nobody = &core{rank: Undefined}

func (c *Comm) facts() *core {
	if c == nil || c.core == nil {
		return nobody
	}
	return c.core
}

// Rank returns the calling rank, Undefined for nil.
func (c *Comm) Rank() int { return c.facts().rank }

// Size returns the number of ranks, 0 for nil.
func (c *Comm) Size() int { return c.facts().size }

// Name returns the communicator's name, "" for nil.
func (c *Comm) Name() string { return c.facts().name }

// Backend returns the backend's communicator, nil for nil.
func (c *Comm) Backend() backend.Comm { return c.facts().bc }

// Diagnostics returns what the backend reports, and Options.Notes.
func (c *Comm) Diagnostics() []string {
	if c == nil || c.core == nil {
		return nil
	}
	return slices.Concat(c.core.bc.Diagnostics(), c.core.job.Notes)
}

// Caps returns the capabilities of the backend, the zero Caps for nil.
func (c *Comm) Caps() backend.Caps {
	if c == nil || c.core == nil {
		return backend.Caps{}
	}
	return c.core.bc.Caps()
}

// Devices returns what the backend can do with buffers in the memory of devices, nil if nothing.
func (c *Comm) Devices() backend.Devices { return c.facts().devices }

// scheduled is the Devices of a job whose collectives are all schedules.
type scheduled struct{ backend.Devices }

// Direct implements backend.Devices.
func (s scheduled) Direct(coll backend.Coll, op backend.OpCode, kind backend.Kind, bytes int) bool {
	return coll == 0 && s.Devices.Direct(coll, op, kind, bytes)
}

// Usable returns ErrComm for a nil communicator and ErrClosed for one whose Close has begun.
func (c *Comm) Usable() error {
	switch {
	case c == nil || c.core == nil:
		return errNil
	case c.core.life.ended():
		return errClosed
	}
	return nil
}

var errNil = fault(backend.ErrComm, "the communicator is nil")

// take reserves the communicator for the caller's collective.
func (c *Comm) take() error {
	if c == nil || c.core == nil {
		return errNil
	}
	return c.core.life.take()
}

// Failed wraps the error of an operation. It returns nil for nil.
func (c *Comm) Failed(op string, peer, tag int, err error) error {
	if err == nil {
		return nil // inlined
	}
	return c.wrap(op, peer, tag, err)
}

func (c *Comm) wrap(op string, peer, tag int, err error) error {
	return &backend.OpError{Op: op, Comm: c.Name(), Rank: c.Rank(), Peer: peer, Tag: tag, Err: c.recorded(op, err)}
}

// failed is Failed for an operation without peer and tag.
func (c *Comm) failed(op string, err error) error { return c.Failed(op, Undefined, Undefined, err) }

// fault returns an error that wraps a sentinel and gives the facts.
func fault(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, args...)}
}

// withDeadline returns the handle for the steps of an operation that begins now: the limit on its time is that of all
// steps together.
func (c *Comm) withDeadline() *Comm {
	if c == nil || c.bound == nil || c.bound.Timeout == 0 {
		return c // inlined
	}
	return c.timed()
}

func (c *Comm) timed() *Comm {
	if !c.bound.Since.IsZero() {
		return c
	}
	h := &struct {
		Comm
		limits backend.Bound
	}{Comm{core: c.core, ctx: c.ctx}, *c.bound}
	h.limits.Since = time.Now()
	h.bound = &h.limits
	return &h.Comm
}

// Ending returns a handle of the same communicator whose messages end when it is closed or breaks, also where they would
// wait inside a library.
func (c *Comm) Ending() *Comm {
	return &Comm{core: c.core, ctx: c.ctx, bound: c.ends()}
}

// ends returns the limit of a message of Ending.
func (c *Comm) ends() *backend.Bound {
	if c.bound != nil {
		return c.bound
	}
	return untilClosed
}

// untilClosed limits nothing.
var untilClosed = &backend.Bound{Ends: true}

// on returns the handle of a communicator made from c for the further steps of an operation that has begun on c.
func (c *Comm) on(d *Comm) *Comm { return &Comm{core: d.core, ctx: c.ctx, bound: c.bound} }

// WithContext returns a handle of the same communicator whose operations end when ctx does.
func (c *Comm) WithContext(ctx context.Context) *Comm {
	if c == nil || c.core == nil {
		return c
	}
	k := c.core
	if ctx == nil || ctx.Done() == nil {
		return k.plain
	}
	if ctx = asMapKey(ctx); ctx == k.job.ctx {
		return k.plain
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if h := k.handles[ctx]; h != nil {
		return h.comm
	}
	both, cancel := joinContexts(ctx, k.job.ctx)
	h := &handle{comm: &Comm{core: k, ctx: ctx, bound: k.job.newBound(both)}, cancel: cancel}
	if k.life.ended() {
		cancel()
		return h.comm // every operation gives ErrClosed
	}
	if k.handles == nil {
		k.handles = make(map[context.Context]*handle)
	}
	k.handles[ctx] = h
	h.stop = context.AfterFunc(both, func() {
		k.bc.Wake()
		k.mu.Lock()
		if k.handles[ctx] == h {
			delete(k.handles, ctx)
		}
		k.mu.Unlock()
		cancel() // so that the world's context does not refer to ctx for as long as the job runs
	})
	return h.comm
}

// asMapKey returns ctx, or a context for it that == and maps accept. A program may pass a struct that has a slice.
func asMapKey(ctx context.Context) context.Context {
	if reflect.ValueOf(ctx).Comparable() {
		return ctx
	}
	return &struct{ context.Context }{ctx}
}

// joinContexts returns a context that ends when ctx or the world's context ends. It has the earlier of
// their deadlines.
func joinContexts(ctx, world context.Context) (context.Context, func()) {
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
