package sched

import (
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// Runner runs the collectives of one rank's end of one communicator. Its
// methods are called by one goroutine at a time.
type Runner struct {
	comm       backend.Comm
	colls      backend.Collectives // the same, nil if it is none
	rank, size int
	nodes      *coll.Nodes // nil: they make no difference
	legs       []leg       // of exchanges; the first operation sets both
	cache      cache
	op         *Op   // of the blocking collectives
	behind     []*Op // blocking neighborhood collectives that have ended before their checks, the oldest first
	persistent uint32
	oneThread  bool // only one thread may use the backend, so a schedule starts no goroutines

	// CheckAll makes also blocking neighborhood collectives wait for the check.
	CheckAll bool

	mu   sync.Mutex // guards free, which Release adds to from any goroutine
	free []*Op      // of nonblocking collectives, to be used again
}

// New returns a runner.
func New(comm backend.Comm) *Runner {
	colls, _ := comm.(backend.Collectives)
	r := &Runner{comm: comm, colls: colls, rank: comm.Rank(), size: comm.Size()}
	switch comm.Caps().ThreadLevel {
	case "single", "funneled":
		r.oneThread = true
	}
	return r
}

// Run makes a blocking collective call. With check false the caller has made sure that all
// ranks make the same call and that its arguments are right.
func (r *Runner) Run(b *backend.Bound, call *backend.Call, check bool) error {
	first := unchecked
	if check {
		if r.ahead(call) {
			return r.runAhead(b, call)
		}
		first = checking
	}
	o := r.blocking(call)
	s, err := r.schedule(&o.call, first)
	if err != nil {
		return err
	}
	return r.do(b, o, s, first)
}

// Agree checks that all ranks make the same call, and moves no data. It returns the error
// that Run would return, or nil and whether a rank's bound can end the call early, which is
// the same on all ranks. It is a barrier.
func (r *Runner) Agree(b *backend.Bound, call *backend.Call) (bounded bool, err error) {
	o := r.blocking(call)
	if err := r.do(b, o, nil, checking); err != nil {
		return false, err
	}
	return o.check.seen.Bounded, nil
}

// blocking returns the operation of a blocking call.
func (r *Runner) blocking(call *backend.Call) *Op {
	if r.op == nil {
		r.op = newOp(r)
	}
	r.op.call = *call
	return r.op
}

// do runs the operation of a blocking call to its end.
func (r *Runner) do(b *backend.Bound, o *Op, s *coll.Schedule, check phase) error {
	o.start(s, backend.CheckTag(o.call.Seq), b, check)
	if !o.Ready() {
		if err := Wait(b, o); err != nil {
			r.op = nil // still under way
			return err
		}
	}
	o.call.Send, o.call.Recv = nil, nil
	return o.Err()
}

// Start makes a nonblocking collective call. The call is copied.
func (r *Runner) Start(call *backend.Call) (backend.Operation, error) {
	o := r.take()
	o.call = *call
	s, err := r.schedule(&o.call, checking)
	if err != nil {
		return nil, err
	}
	o.start(s, backend.CheckTag(call.Seq), nil, checking)
	return o, nil
}

// mostFree is how many operations are kept for later ones, and mostTemp how many bytes
// each may keep.
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

// Release frees an operation that Start or Prepare returned. It must be Ready, and is not
// used afterwards.
func (o *Op) Release() {
	o.call, o.prepared, o.compared = backend.Call{}, nil, false
	if len(o.data.temp) > mostTemp {
		o.data.temp = nil
	}
	if cap(o.data.operands) > mostTemp {
		o.data.operands = nil
	}
	r := o.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.free) < mostFree {
		r.free = append(r.free, o)
	}
}

// Prepare makes a persistent operation after the ranks' calls have been found equal, so that
// starting it only moves data. All ranks call Prepare in the same order.
func (r *Runner) Prepare(call *backend.Call) (backend.Operation, error) {
	o := r.take()
	o.call = *call
	s, err := coll.Build(&o.call, r.rank, r.size, r.nodes)
	if err != nil {
		return nil, r.noSchedule(call, err)
	}
	o.data.prepare(s)
	o.data.grow()
	o.prepared, o.tag = s, backend.PersistentTag(r.persistent)
	r.persistent++
	return o, nil
}

// schedule returns the schedule to run for a call, nil if none is needed.
func (r *Runner) schedule(call *backend.Call, check phase) (*coll.Schedule, error) {
	if call.Err != nil || check == checking && call.Coll == backend.Barrier {
		return nil, nil // the exchange of fingerprints is a barrier itself
	}
	s, err := r.cache.get(call, r.rank, r.size, r.nodes)
	if err != nil {
		err = r.noSchedule(call, err)
	}
	return s, err
}

// noSchedule breaks the communicator because no schedule can be built for a call.
func (r *Runner) noSchedule(call *backend.Call, why error) error {
	err := &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf("no schedule for %v: %v", call.Fingerprint(), why)}
	r.comm.Break(err)
	return err
}

// Wait waits until the operation is complete and returns nil, whether it succeeded or not. If
// b ends first the operation is given up, and Wait returns what End does.
func Wait(b *backend.Bound, o backend.Operation) error {
	if err := o.(*Op).r.comm.Await(b, o); err != nil {
		return o.End(err)
	}
	return nil
}
