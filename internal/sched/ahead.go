package sched

import (
	"errors"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// In a blocking neighborhood collective a rank waits for the messages of its neighbors only. The check
// goes on after the call has returned: all ranks take part in it, but none waits for it. A rank that finds a
// mismatch breaks the communicator, and the next operation of the others returns it. Before its fourth such
// call a rank waits for the check of the first, so ranks cannot be further apart than that.

const mostAhead = 3

// ahead reports whether a call ends before its check.
func (r *Runner) ahead(call *backend.Call) bool {
	return call.Coll.Neighbor() && call.Form == backend.Blocking && call.Err == nil && !r.CheckAll
}

// goesOnAfter reports whether the check goes on after err: that of a rank that has left the communicator in good order. That
// rank may have been ahead of this one.
func (o *Op) goesOnAfter(err error) bool {
	f, ok := err.(*backend.Fault)
	return ok && f.Left && o.r.ahead(&o.call)
}

// landing is ready when the messages of an operation have arrived.
type landing Op

// Ready implements backend.Pending.
func (l *landing) Ready() bool { return (*Op)(l).now().data() >= landed }

// runAhead makes a blocking neighborhood collective.
func (r *Runner) runAhead(b *backend.Bound, call *backend.Call) error {
	if err := r.catchUp(b); err != nil {
		return err
	}
	o := r.take()
	o.call = *call
	s, err := r.schedule(&o.call, checking)
	if err != nil {
		return err
	}
	o.start(s, backend.CheckTag(call.Seq), b, checking)
	if !(*landing)(o).Ready() {
		if err := r.comm.Await(b, (*landing)(o)); err != nil {
			if err := o.End(err); err != nil {
				return err // the operation is still under way
			}
		}
	}
	if o.data.wrong.receiver >= 0 && r.comm.Await(&backend.Bound{Timeout: Grace}, o) != nil {
		r.breakComm(o.data.wrong.fault(elemSize(&o.call))) // the check may wait for ranks that wait for this one
	}
	if o.data.err == nil && o.data.wrong.receiver < 0 && !o.Ready() {
		r.behind = append(r.behind, o)
		return nil
	}
	return r.end(b, o)
}

// end waits until an operation that is not in behind has ended, and frees it.
func (r *Runner) end(b *backend.Bound, o *Op) error {
	if err := Wait(b, o); err != nil {
		return err
	}
	err := o.Err()
	o.Release()
	return err
}

// catchUp frees operations whose checks have ended, and waits until fewer than mostAhead are left.
func (r *Runner) catchUp(b *backend.Bound) error {
	for len(r.behind) > 0 && (r.behind[0].Ready() || len(r.behind) == mostAhead) {
		o := r.behind[0]
		r.behind = slices.Delete(r.behind, 0, 1)
		if err := r.end(b, o); err != nil {
			return err
		}
	}
	return nil
}

// Quiesce waits, for at most limit, for the checks that go on after their calls have returned. It returns
// a mismatch that they have found. The communicator is about to be closed.
func (r *Runner) Quiesce(limit time.Duration) error {
	if len(r.behind) == 0 {
		return nil
	}
	_ = r.comm.Await(&backend.Bound{Timeout: limit}, r.behind[len(r.behind)-1])
	for _, o := range r.behind {
		switch v := o.verdict.Load(); {
		case v != nil && errors.Is(v.err, backend.ErrMismatch):
			return v.err
		case o.now().check() == checking:
			o.check.leave()
		}
	}
	return nil
}

// leave sends this rank's call to the ranks that the exchange has not reached yet. This rank leaves before the others
// have made the call, and cannot pass on what they will send. A round that begins meanwhile may send the call again.
func (x *exchange) leave() {
	own := backend.See(x.o.r.rank, x.o.call.Fingerprint())
	for _, l := range x.o.r.legs[min(int(x.step.Load())+1, len(x.o.r.legs)):] {
		if l.to >= 0 {
			q, out := &backend.Request{}, make([]byte, backend.SeenSize)
			own.Encode(out)
			q.Begin()
			x.o.r.comm.Isend(q, out, l.to, backend.CheckTag(x.o.call.Seq), backend.Standard)
		}
	}
}
