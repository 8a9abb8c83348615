package sched

import (
	"errors"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Op is a nonblocking or persistent collective, a [backend.Operation]. Start, and the
// methods called after Ready, come from one goroutine at a time. Any goroutine may
// advance the Op.
type Op struct {
	r    *Runner
	call backend.Call

	prepared *coll.Schedule // of a persistent one, with its tag
	tag      int
	compared bool // a start of a persistent one has compared the lengths, which stay as they are

	check exchange
	data  data

	phase   word.Uint32 // see phase
	verdict word.Pointer[verdict]
	broken  error // why the communicator was broken when the operation started; nil: it was not
}

func newOp(r *Runner) *Op {
	r.place()
	o := &Op{r: r}
	o.check.init(o)
	o.data.init(o)
	o.verdict.Store(success)
	return o
}

// Start starts an operation that Prepare made and that is not under way.
func (o *Op) Start() { o.start(o.prepared, o.tag, nil, unchecked) }

// compares reports whether the operation ends with an exchange of lengths.
func (o *Op) compares() bool {
	switch o.call.Coll {
	case backend.Gatherv, backend.Scatterv, backend.Alltoallv:
		return !o.compared
	}
	return o.call.Coll.Neighbor() && (o.now().check() != unchecked || o.prepared != nil && !o.compared)
}

// start runs the operation with a schedule. It is nil if the arguments are wrong, or if the
// check alone does the work. check says whether there is a check, which also publishes whether b can end the call.
func (o *Op) start(s *coll.Schedule, tag int, b *backend.Bound, check phase) {
	colls := o.r.colls // o may be in use again as soon as it has ended
	o.broken = o.r.comm.Broken()
	data := noData
	if s != nil {
		data = moving
	}
	o.phase.Store(uint32(check | data))
	o.verdict.Store(nil)
	o.check.tag = tag
	o.data.s = nil
	if check == checking {
		o.check.seen = backend.See(o.r.rank, o.call.Fingerprint())
		o.check.seen.Bounded = b.Limited()
		o.check.begin(tag)
	}
	if s != nil {
		o.data.prepare(s)
		o.data.begin(tag - 1)
	} else if check == unchecked {
		o.conclude()
	}
	if colls != nil {
		colls.Flush()
	}
}

// exchanged is called when an exchange has ended.
func (o *Op) exchanged(x *exchange) {
	if x.lengths() {
		switch {
		case x.err != nil:
			o.fail(x.err)
		case x.wrong.receiver >= 0:
			o.fail(x.wrong.fault(elemSize(&o.call)))
		default:
			o.compared = o.prepared != nil
		}
		o.finish()
		return
	}
	err := x.err
	if err == nil {
		err = x.seen.Err()
	}
	if err != nil {
		o.fail(err) // which ends the data phase
		o.step(checking, failed)
		return
	}
	o.step(checking, passed)
}

// moved is called when the data phase has ended.
//
// Invariant: a data phase with an error leaves none of its messages pending, since a
// round ends only with all its messages. Other ranks may wait for messages of later
// rounds; breaking the communicator ends that.
func (o *Op) moved() {
	if err := o.data.err; err != nil {
		if _, wrong := err.(*lengthError); !wrong { // the check may find why a length is wrong
			o.r.breakComm(err)
		}
	}
	o.step(moving, landed)
}

// conclude is called when check and data have ended, and no message is pending.
func (o *Op) conclude() {
	switch {
	case o.now().check() == failed:
		// fail has been called.
	case o.data.s != nil && o.data.err != nil:
		o.fail(o.data.err)
	case o.broken != nil: // of one rank: the others' messages have failed
		o.fail(&backend.Broken{Cause: o.broken})
	case o.call.Err != nil:
		o.decide(&verdict{o.call.Err}) // the same on all ranks; the communicator stays usable
	case o.data.s == nil:
	case o.call.Coll.Neighbor() && o.data.wrong.receiver >= 0: // the others learn that the communicator is broken
		// At once: the exchange of lengths waits for all ranks, and one of them may wait for this rank before it starts.
		o.fail(o.data.wrong.fault(elemSize(&o.call)))
	case o.compares():
		o.enter(comparing)
		o.check.wrong = o.data.wrong
		o.check.begin(o.check.tag)
		return
	}
	o.finish()
}

// fail ends the operation with an error and breaks the communicator. A rank whose own arguments were wrong
// returns that error, unless the communicator was broken before.
func (o *Op) fail(err error) {
	result := err
	if o.broken == nil {
		// Another rank may have found the reason first and broken the communicator while this operation
		// was under way: the reason is this one's too.
		if errors.Is(err, backend.ErrBroken) {
			if cause := o.r.comm.Broken(); cause != nil {
				result = cause
			}
		}
		if o.call.Err != nil && errors.Is(result, backend.ErrMismatch) {
			result = o.call.Err
		}
	}
	if o.decide(&verdict{result}) {
		o.r.breakComm(err)
	}
}

// breakComm breaks the communicator with err, unless this rank has closed it. Then Close
// reports to the others that the rank has left; ErrClosed would mean that they have
// closed it.
func (r *Runner) breakComm(err error) {
	if !errors.Is(err, backend.ErrClosed) {
		r.comm.Break(err)
	}
}

// Grace is how long an operation that was given up may go on using its buffers.
const Grace = backend.Grace

// End gives an operation up because of why, and breaks its communicator with an error that
// names the ranks that are missing, unless it ends otherwise meanwhile. It returns nil if it has then
// ended. Otherwise it returns the error, and the operation is still under way.
func (o *Op) End(why error) error {
	f := *backend.AsFault(why)
	f.Text += ": " + o.describe(f.Sentinel == backend.ErrTimeout)
	v := &verdict{&f}
	if o.decide(v) {
		o.r.breakComm(v.err)
	} else if now := o.verdict.Load(); errors.Is(now.err, f.Sentinel) { // another rank's deadline
		o.verdict.CompareAndSwap(now, v)
	}
	if !o.Ready() && o.r.comm.Await(&backend.Bound{Timeout: Grace}, o) != nil {
		o.data.buffers.Lock() // local does not use them after that
		defer o.data.buffers.Unlock()
		if !o.Ready() {
			return o.Err()
		}
	}
	return nil
}
