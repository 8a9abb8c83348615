package comm

import (
	"fmt"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// One goroutine at a time may call a collective on a communicator. Blocking forms reserve the
// communicator with Begin and use its Call; Run releases it. The other forms pass their own Call to
// Start or Persist, which reserve and release the communicator themselves. A concurrent call gets
// ErrBusy and sends nothing.

// Begin reserves the communicator for a blocking collective and returns its Call, which is zero except
// for the collective and the root. If that fails, it returns another Call, with the error. The caller
// stores the arguments in the Call and passes it to Run.
func (c *Comm) Begin(coll backend.Coll, root int) *backend.Call {
	if err := c.take(); err != nil {
		return &backend.Call{Coll: coll, Root: root, Err: err}
	}
	call := &c.core.call
	call.Coll, call.Root, call.Total = coll, root, c.total
	return call
}

// Run performs the blocking collective described by the Call from Begin. flags are added to its record.
func (c *Comm) Run(call *backend.Call, flags uint64) error {
	if c == nil || c.core == nil || call != &c.core.call {
		return c.Failed(CollName(call.Coll, backend.Blocking), Undefined, Undefined, call.Err)
	}
	k := c.core
	if call.Coll != backend.Barrier {
		k.check(call)
	}
	if c.typ != nil {
		call.Type = c.typ
	}
	defer k.collected(call) // also if an operation's function ends the goroutine
	err := k.collective(c.withDeadline().bound, call, flags)
	if err != nil {
		err = c.collError(call, err)
	}
	return err
}

// collected ends a blocking collective.
func (k *core) collected(call *backend.Call) {
	if k.ticket != 0 {
		k.recorder.End(k.ticket, backend.UserFault(nil))
		k.ticket = 0
	}
	*call = backend.Call{Root: -1}
	k.life.leave()
}

// do performs the call of this package in the communicator's Call, which it empties. The caller has
// taken the communicator.
func (k *core) do(b *backend.Bound) error {
	err := k.collective(b, &k.call, 0)
	k.call = backend.Call{Root: -1}
	return err
}

// collective performs a blocking collective, natively or as a schedule.
func (k *core) collective(b *backend.Bound, call *backend.Call, flags uint64) error {
	call.Form, call.Seq = backend.Blocking, k.seq
	k.seq++
	tr := k.traceOf(call, backend.Blocking)
	tr.what |= flags
	k.ticket = k.record(tr)
	k.length(k.ticket, call)
	err := k.perform(b, call)
	k.recorder.End(k.ticket, err)
	k.ticket = 0
	return err
}

func (k *core) perform(b *backend.Bound, call *backend.Call) error {
	if k.colls == nil {
		return k.runner.Run(b, call, true)
	}
	plan, err := k.colls.Collective(b, call)
	if plan == backend.PlanDone || err != nil {
		return err
	}
	return k.planned(b, call, plan)
}

// planned performs a call that the backend did not make.
func (k *core) planned(b *backend.Bound, call *backend.Call, plan backend.Plan) error {
	switch plan {
	case backend.PlanSchedule, backend.PlanChecked:
		err := k.runner.Run(b, call, plan == backend.PlanChecked)
		if call.Ended != nil {
			call.Ended()
		}
		return err
	}
	bounded, err := k.runner.Agree(b, call)
	switch {
	case err != nil:
		return err
	case bounded:
		return k.runner.Run(b, call, false)
	}
	call.Agreed = true
	_, err = k.colls.Collective(b, call)
	return err
}

// ReduceLocal combines two buffers of this rank into the second. err is an error in the operation.
func ReduceLocal(op *backend.Op, in, inout []byte, err error) error {
	switch {
	case err != nil:
	case len(in) != len(inout):
		err = fault(backend.ErrCount, "in has %d elements, inout %d; want the same", len(in)/op.Type.Size, len(inout)/op.Type.Size)
	case view.Overlap(in, inout):
		err = fault(backend.ErrBuffer, "in and inout overlap")
	default:
		err = apply(op, in, inout)
	}
	return (*Comm)(nil).failed("reducelocal", err)
}

func apply(op *backend.Op, in, inout []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = backend.UserFault(p)
		}
	}()
	op.Apply(inout, in, inout)
	return nil
}

// next prepares a call of another form than the blocking one: it takes the communicator, checks the
// arguments, and numbers the call.
func (c *Comm) next(call *backend.Call, form backend.Form) error {
	call.Form = form
	if err := c.take(); err != nil {
		return c.collError(call, err)
	}
	k := c.core
	k.check(call)
	call.Seq = k.seq
	k.seq++
	return nil
}

// Start starts a nonblocking collective. It copies the call, whose buffers belong to the operation
// until it is complete.
func (c *Comm) Start(call *backend.Call) (*Request, error) {
	if err := c.next(call, backend.Nonblocking); err != nil {
		return nil, err
	}
	k := c.core
	tr := k.traceOf(call, backend.Nonblocking)
	t := k.record(tr)
	k.length(t, call)
	op, err := k.startByBackend(call)
	if op == nil && err == nil {
		op, err = k.runner.Start(call)
	}
	if err != nil {
		k.life.leave()
		k.recorder.End(t, err)
		return nil, c.collError(call, err)
	}
	q := &Request{pending: k.job.pending()}
	q.op, q.coll, q.peer, q.tag, q.ticket = op, call.Coll, rootOf(call), Undefined, t
	q.what = tr.what
	q.beginFor(c)
	k.recorder.Started(t)
	q.open()
	k.addOutstanding(outstanding{q: q})
	k.life.leave()
	return q, nil
}

// startByBackend passes a copy of a nonblocking or persistent call to the backend, which keeps the
// caller's off the heap.
func (k *core) startByBackend(call *backend.Call) (op backend.Operation, err error) {
	if k.colls != nil {
		k.call = *call
		op, err = k.colls.StartCollective(&k.call)
		k.call = backend.Call{Root: -1}
	}
	return op, err
}

// Persist prepares a persistent collective. It waits for the other ranks' calls, so that a mismatch
// is found here.
func (c *Comm) Persist(call *backend.Call) (*Persistent, error) {
	if err := c.next(call, backend.Persistent); err != nil {
		return nil, err
	}
	k := c.core
	tr := k.traceOf(call, backend.Persistent)
	t := k.record(tr)
	k.recorder.Length(t, 0)
	op, err := k.prepareOp(c.withDeadline().bound, call)
	k.recorder.End(t, err)
	defer k.life.leave()
	if err != nil {
		return nil, c.collError(call, err)
	}
	p := c.persistent(&Persistent{op: op, trace: tr, bytes: bytesOf(call)}, CollName(call.Coll, backend.Persistent), nil, rootOf(call), Undefined)
	k.addOutstanding(outstanding{p: p})
	return p, nil
}

func (k *core) prepareOp(b *backend.Bound, call *backend.Call) (backend.Operation, error) {
	if _, err := k.runner.Agree(b, call); err != nil {
		return nil, err
	}
	if op, err := k.startByBackend(call); op != nil || err != nil {
		return op, err
	}
	return k.runner.Prepare(call)
}

// collError wraps the error of a collective. If the ranks passed different counts, it says what this one passed.
func (c *Comm) collError(call *backend.Call, err error) error {
	counts := call.RecvCounts
	if f, ok := err.(*backend.Fault); ok && f.Sentinel == backend.ErrMismatch && (call.Coll == backend.Allgatherv || call.Coll == backend.ReduceScatter) {
		const most = 64
		text := fmt.Sprint(counts[:min(len(counts), most)])
		if len(counts) > most {
			text += " …"
		}
		err = fault(f.Sentinel, "%s; rank %d passed the counts %s", f.Text, c.core.rank, text)
	}
	return c.Failed(CollName(call.Coll, call.Form), rootOf(call), Undefined, err)
}

// rootOf returns the rank that an error of a collective names as its peer.
func rootOf(call *backend.Call) int {
	if call.Root >= 0 {
		return call.Root
	}
	return Undefined
}

// CollName is the name of a collective's function in lower case.
func CollName(coll backend.Coll, form backend.Form) string {
	name := strings.ToLower(coll.String())
	switch form {
	case backend.Nonblocking:
		return "i" + name
	case backend.Persistent:
		return name + "init"
	}
	return name
}
