package sched

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
)

// Runner runs the collectives of one rank's end of one communicator. Its
// methods are called by one goroutine at a time.
type Runner struct {
	comm       backend.Comm
	rank, size int
	cache      cache
	op         *Op // of the blocking collectives
	persistent uint32

	mu   sync.Mutex // guards free, which Release adds to from any goroutine
	free []*Op      // of nonblocking collectives that are over
}

// New returns a runner.
func New(comm backend.Comm) *Runner {
	return &Runner{comm: comm, rank: comm.Rank(), size: comm.Size()}
}

// Run makes a blocking collective call. With check false the caller knows that
// all ranks make the same call and that its arguments are right.
func (r *Runner) Run(b *backend.Bound, call *backend.Call, check bool) error {
	if r.op == nil {
		r.op = newOp(r)
	}
	o := r.op
	o.call = *call
	s, err := r.schedule(&o.call, check, true)
	if err != nil {
		return err
	}
	o.start(s, backend.CheckTag(call.Seq), check)
	if !o.Ready() {
		if err := Wait(b, o); err != nil {
			r.op = nil // still under way
			return err
		}
	}
	err = o.err
	o.call.Send, o.call.Recv = nil, nil
	return err
}

// Start makes a nonblocking collective call. The call is copied.
func (r *Runner) Start(call *backend.Call) (*Op, error) {
	o := r.take()
	o.call = *call
	s, err := r.schedule(&o.call, true, true)
	if err != nil {
		return nil, err
	}
	o.start(s, backend.CheckTag(call.Seq), true)
	return o, nil
}

// mostFree is how many operations are kept for later ones, and mostTemp how much
// memory each may keep.
const (
	mostFree = 32
	mostTemp = 1 << 16
)

func (r *Runner) take() *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.free)
	if n == 0 {
		return newOp(r)
	}
	o := r.free[n-1]
	r.free = r.free[:n-1]
	return o
}

// Release hands back an operation that Start returned, which is Ready and is not
// looked at any more.
func (o *Op) Release() {
	o.call = backend.Call{}
	if len(o.data.temp) > mostTemp {
		o.data.temp = nil
	}
	r := o.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < mostFree {
		r.free = append(r.free, o)
	}
}

// Prepare makes an operation that can be started many times. The ranks find out
// here whether their calls are the same, so that starting it only moves data.
func (r *Runner) Prepare(b *backend.Bound, call *backend.Call) (*Persistent, error) {
	o := newOp(r)
	o.call = *call
	o.start(nil, backend.CheckTag(call.Seq), true)
	if err := Wait(b, o); err != nil {
		return nil, err
	}
	if o.err != nil {
		return nil, o.err
	}
	s, err := r.schedule(&o.call, false, false)
	if err != nil {
		return nil, err
	}
	o.data.prepare(s)
	p := &Persistent{o: o, s: s, tag: backend.PersistentTag(r.persistent)}
	r.persistent++
	return p, nil
}

// schedule returns the schedule to run for a call, nil if none is needed.
func (r *Runner) schedule(call *backend.Call, check, cached bool) (*coll.Schedule, error) {
	if call.Err != nil || check && call.Coll == backend.Barrier {
		return nil, nil // the exchange of fingerprints is a barrier itself
	}
	var s *coll.Schedule
	var err error
	if cached {
		s, err = r.cache.get(call, r.rank, r.size)
	} else {
		s, err = coll.Build(call, r.rank, r.size)
	}
	if err != nil {
		err = &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf("no schedule for %v: %v", call.Fingerprint(), err)}
		r.comm.Break(err)
	}
	return s, err
}

// Persistent is a prepared operation.
type Persistent struct {
	o   *Op
	s   *coll.Schedule
	tag int
}

// Start starts the operation, which must not be under way, and returns it.
func (p *Persistent) Start() *Op {
	p.o.start(p.s, p.tag, false)
	return p.o
}

// Grace is how long an operation that was given up may take to let go of its
// buffers.
const Grace = 20 * time.Millisecond

// Wait waits until the operation is complete and returns nil, whatever came of
// it. If b ends it first, the communicator is broken with an error that names
// the ranks not heard from, and Wait returns nil all the same if the operation
// has then ended with that error. Otherwise it is still under way, and the error
// is returned.
func Wait(b *backend.Bound, o *Op) error {
	if err := o.r.comm.Await(b, o); err != nil {
		return End(o, err)
	}
	return nil
}

// End breaks an operation off because of why. It returns what Wait does.
func End(o *Op, why error) error {
	kind := sentinel(why)
	text := strings.TrimPrefix(why.Error(), kind.Error()+": ")
	err := error(&backend.Fault{Sentinel: kind, Text: text + ": " + o.describe(kind == backend.ErrTimeout)})
	o.r.comm.Break(err)
	if !o.Ready() && o.r.comm.Await(&backend.Bound{Timeout: Grace}, o) != nil {
		return err
	}
	if errors.Is(o.err, kind) {
		o.err = err
	}
	return nil
}

func sentinel(err error) error { return backend.Sentinel(backend.Code(err)) }
