package comm

import (
	"context"
	"errors"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/word"
)

// withdraw ends a request because of why, which becomes its error if it had not matched. A matched message is about to
// arrive, but a stopped peer must not delay a deadline. If the request is still under way then, withdraw breaks the
// communicator, so that nothing uses the buffer any more, and returns false. of is the operation of a request that does not
// end in the call that began it; otherwise it is nil.
func (k *core) withdraw(q *backend.Request, why error, of *pending) bool {
	k.bc.Cancel(q)
	b := k.withdrawer
	if b != nil && of != nil && k.job.vainWaits.covers(of) {
		k.bc.Poll() // the message may have matched
		b.GiveUp(q, why)
	}
	wait := of.beginWait()
	if !q.Ready() && k.bc.Await(&backend.Bound{Timeout: sched.Grace}, q) != nil {
		k.job.vainWaits.note(wait)
		if b == nil || !b.GiveUp(q, why) {
			k.bc.Break(why)
			return false
		}
	}
	if errors.Is(q.Err, backend.ErrCanceled) {
		q.Err = why
	}
	return true
}

// vainWaits notes that a goroutine has waited in vain, for sched.Grace, for the answer to a canceled send. Sends whose
// deadline had passed, or whose context had ended, when that wait began do not wait again. So many late sends wait 20 ms
// together, not each.
type vainWaits struct{ last word.Pointer[vain] }

// vain is a wait that was in vain.
type vain struct {
	began time.Time
	ctx   context.Context // had ended by then; nil: the operation had a deadline
}

// now is the clock. Explorations have their own.
var now = time.Now

// beginWait returns what to note if a wait that begins now is in vain. For an operation that ends in the call that began
// it, p is nil.
func (p *pending) beginWait() (v vain) {
	if p != nil && p.c.ctx.Err() != nil {
		v.ctx = p.c.ctx
	}
	v.began = now()
	return v
}

// note is called when a wait was in vain.
func (p *vainWaits) note(v vain) { p.last.Store(&v) }

// covers reports whether an operation was over when the last wait that was in vain began.
func (p *vainWaits) covers(of *pending) bool {
	v := p.last.Load()
	if v == nil {
		return false
	}
	end, timed := of.limit.Deadline(time.Time{})
	return timed && !end.After(v.began) || v.ctx != nil && v.ctx == of.c.ctx
}
