package wait

import (
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// operation is one goroutine's wait for an operation of a backend: a Waiter.
type operation struct {
	member *Member
	crew   *Crew
	b      *backend.Bound
	p      backend.Pending
	start  time.Time
	slept  bool
}

var operations = sync.Pool{New: func() any {
	o := new(operation)
	o.member = NewMember(o)
	return o
}}

// AwaitPending returns nil when p is ready, or the error of b if b ends first.
func (c *Crew) AwaitPending(b *backend.Bound, p backend.Pending) error {
	o := c.spare.Swap(nil)
	if o == nil {
		o = operations.Get().(*operation)
		o.member.parker.Drop()
	}
	o.crew, o.b, o.p, o.slept, o.start = c, b, p, false, time.Time{}
	if b.Limited() {
		o.start = time.Now()
	}
	err := b.Err(o.start)
	if err == nil {
		c.Await(o.member)
		if !p.Ready() {
			err = b.Err(o.start)
		}
	}
	o.crew, o.b, o.p = nil, nil, nil
	if !c.spare.CompareAndSwap(nil, o) {
		operations.Put(o)
	}
	return err
}

// Background returns a member for Attend, which waits until p is ready or the context of b has ended.
func (c *Crew) Background(b *backend.Bound, p backend.Pending) *Member {
	o := &operation{crew: c, b: b, p: p}
	o.member = NewMember(o)
	return o.member
}

// Ready implements Waiter. A deadline has a timer.
func (o *operation) Ready() bool {
	return o.p.Ready() || o.b != nil && o.b.Ctx != nil && o.b.Ctx.Err() != nil
}

// Look implements Waiter.
func (o *operation) Look() bool { return o.crew.LookFor != nil && o.crew.LookFor(o.p) }

// Limit implements Waiter.
func (o *operation) Limit() (limit time.Duration, left bool) {
	if !o.slept && o.crew.OnWait != nil {
		o.crew.OnWait()
	}
	o.slept = true
	if d, ok := o.b.Deadline(o.start); ok {
		limit = max(time.Until(d), time.Microsecond)
	}
	return limit, o.b.Err(o.start) == nil
}
