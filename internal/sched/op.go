package sched

import (
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
)

// Op is one collective under way, or one that can be started again and again: a
// [backend.Operation]. Start and what is called after Ready come from one
// goroutine at a time; what moves the Op on may be any.
type Op struct {
	r    *Runner
	call backend.Call

	prepared *coll.Schedule // of a persistent one, with its tag
	tag      int

	check exchange
	data  data

	// phases counts what is under way: check, data, and one while they are being
	// started. Who takes it to 0 concludes.
	phases   atomic.Int32
	checked  atomic.Uint32 // how far the check is
	stalled  atomic.Bool   // the data phase met a length it cannot go on with
	checking bool
	broken   error // why the communicator was broken when the operation started; nil: it was not
	done     atomic.Bool
	err      error
}

const (
	checkRunning uint32 = iota
	checkPassed
	checkFailed
)

func newOp(r *Runner) *Op {
	r.place()
	o := &Op{r: r}
	o.check.init(o)
	o.data.init(o)
	o.done.Store(true)
	return o
}

// Ready reports whether the operation is complete, or was never started.
func (o *Op) Ready() bool { return o.done.Load() }

// Err returns how the operation ended, once it is Ready.
func (o *Op) Err() error { return o.err }

// Start starts an operation that Prepare made and that is not under way.
func (o *Op) Start() { o.start(o.prepared, o.tag, nil, false) }

// verdict reports whether the operation ends with an exchange of lengths.
func (o *Op) verdict() bool {
	switch o.call.Coll {
	case backend.Gatherv, backend.Scatterv, backend.Alltoallv:
		return true
	}
	return false
}

// start runs the operation with a schedule, nil for one that has none because
// its arguments are wrong or the check alone does what it is for. The check tells
// the others whether b can end the call.
func (o *Op) start(s *coll.Schedule, tag int, b *backend.Bound, checking bool) {
	o.checking = checking
	o.broken = o.r.comm.Broken()
	o.err = nil
	o.stalled.Store(false)
	o.done.Store(false)
	phases := int32(1)
	if checking {
		phases++
		o.checked.Store(checkRunning)
	} else {
		o.checked.Store(checkPassed)
	}
	if s != nil {
		phases++
	}
	o.check.tag = tag
	o.data.s = nil
	o.phases.Store(phases)
	if checking {
		o.check.lengths = false
		o.check.seen = backend.See(o.r.rank, o.call.Fingerprint())
		o.check.seen.Bounded = b.Limited()
		o.check.begin(tag)
	}
	if s != nil {
		o.data.prepare(s)
		o.data.begin(tag - 1)
	}
	kept := o.r.kept
	o.leave()
	if kept != nil {
		kept.Flush()
	}
}

func (o *Op) leave() {
	if o.phases.Add(-1) == 0 {
		o.conclude()
	}
}

// exchanged is called when an exchange has ended.
func (o *Op) exchanged(x *exchange) {
	if x.lengths {
		switch {
		case x.err != nil:
			o.fail(x.err)
		case x.verdict.receiver >= 0:
			o.fail(x.verdict.fault(elemSize(&o.call)))
		}
		o.finish()
		return
	}
	err := x.err
	if err == nil {
		err = x.seen.Err()
	}
	if err != nil {
		o.checked.Store(checkFailed)
		o.fail(err) // which ends the data phase
	} else {
		o.checked.Store(checkPassed)
		if o.stalled.Load() {
			o.r.comm.Break(&backend.Fault{Sentinel: backend.ErrInternal, Text: "schedules do not fit together"})
		}
	}
	o.leave()
}

// moved is called when the data phase has ended.
//
// Invariant: a data phase with an error leaves no message of its own pending,
// since a round ends only with all its messages; but other ranks may wait for
// messages of later rounds, which the breaking of the communicator ends.
func (o *Op) moved() {
	if err := o.data.err; err != nil {
		if _, soft := err.(*lengthError); soft {
			o.stalled.Store(true)
			if o.checked.Load() == checkPassed {
				o.r.spoil(err)
			}
		} else {
			o.r.spoil(err)
		}
	}
	o.leave()
}

// conclude is called when check and data are over, and no message is pending.
func (o *Op) conclude() {
	switch {
	case o.checked.Load() == checkFailed:
		// fail has been called.
	case o.data.s != nil && o.data.err != nil:
		o.fail(o.data.err)
	case o.broken != nil: // of one rank: the others' messages have failed
		o.fail(&backend.Broken{Cause: o.broken})
	case o.call.Err != nil:
		o.err = o.call.Err // the same on all ranks; the communicator stays usable
	case o.data.s == nil:
	case o.verdict():
		o.check.lengths = true
		o.check.verdict = o.data.wrong
		o.check.begin(o.check.tag)
		return
	}
	o.finish()
}

// fail sets the operation's error and breaks the communicator. A rank whose own arguments were wrong
// returns that error, unless the communicator was broken before.
func (o *Op) fail(err error) {
	o.r.spoil(err)
	if o.broken == nil {
		// Another rank may have found the reason first and broken the communicator while this operation
		// was under way: the reason is this one's too.
		if errors.Is(err, backend.ErrBroken) {
			if cause := o.r.comm.Broken(); cause != nil {
				err = cause
			}
		}
		if o.call.Err != nil && errors.Is(err, backend.ErrMismatch) {
			err = o.call.Err
		}
	}
	o.err = err
}

// spoil breaks the communicator because of err. If the reason is that this rank has closed it, the
// others hear from Close that the rank has left: ErrClosed would tell them that they have closed it.
func (r *Runner) spoil(err error) {
	if !errors.Is(err, backend.ErrClosed) {
		r.comm.Break(err)
	}
}

// finish marks the operation complete. Nothing of it may be touched afterwards:
// whoever waits may start it again.
func (o *Op) finish() { o.done.Store(true) }

// Grace is how long an operation that was given up may take to let go of its
// buffers.
const Grace = 20 * time.Millisecond

// End breaks an operation off because of why, and its communicator with an error
// that names the ranks not heard from. It returns nil if the operation has then
// ended, with that error unless it had one before; otherwise it is still under
// way, and the error is returned.
func (o *Op) End(why error) error {
	kind := backend.Sentinel(backend.Code(why))
	text := strings.TrimPrefix(why.Error(), kind.Error()+": ")
	err := error(&backend.Fault{Sentinel: kind, Text: text + ": " + o.describe(kind == backend.ErrTimeout)})
	o.r.spoil(err)
	if !o.Ready() && o.r.comm.Await(&backend.Bound{Timeout: Grace}, o) != nil {
		return err
	}
	if errors.Is(o.err, kind) {
		o.err = err
	}
	return nil
}
