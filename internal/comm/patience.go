package comm

import (
	"context"
	"time"

	"github.com/cohort-hpc/cohort/internal/word"
)

// patience notes that a goroutine has waited in vain, for sched.Grace, for the answer to a canceled send. Sends that were over
// when that wait began need not wait again: the time of many sends that end together, and whose receivers do not answer, is
// that of one.
type patience struct{ last word.Pointer[vain] }

// vain is a wait that was in vain.
type vain struct {
	began time.Time
	ctx   context.Context // had ended by then; nil: the operation had a deadline
}

// now is the clock. Explorations have their own.
var now = time.Now

// waits returns what to note if a wait that begins now is in vain. For an operation that ends in the call that began it, p is nil.
func (p *pending) waits() (v vain) {
	if p != nil && p.c.ctx.Err() != nil {
		v.ctx = p.c.ctx
	}
	v.began = now()
	return v
}

// note is called when a wait was in vain.
func (p *patience) note(v vain) { p.last.Store(&v) }

// covers reports whether an operation was over when the last wait that was in vain began.
func (p *patience) covers(of *pending) bool {
	v := p.last.Load()
	if v == nil {
		return false
	}
	end, timed := of.limit.Deadline(time.Time{})
	return timed && !end.After(v.began) || v.ctx != nil && v.ctx == of.c.ctx
}
