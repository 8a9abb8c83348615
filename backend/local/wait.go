package local

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	spins    = 4096                   // checks before parking, some microseconds
	lingers  = 1024                   // checks before a receive is posted, a microsecond or two
	between  = 64                     // checks between yields
	ringLook = 16                     // checks of the cell between looks at the ring
	lookFor  = 200 * time.Microsecond // at most, as yields may take long
	yields   = 2                      // checks, each after a yield, if ranks share processors
)

// patience counts how often a waiter checks before it parks. Ranks spin if each has a
// processor. Otherwise the ranks waited for may need this one's.
type patience struct {
	spins, n int
	next     int       // the check before which to yield
	since    time.Time // of the first yield
}

func (j *job) patience() patience { return patience{spins: j.spins, next: between} }

// more reports whether to check once more.
func (p *patience) more() bool {
	p.n++
	if p.spins == 0 {
		runtime.Gosched()
		return p.n <= word.Spins(yields)
	}
	if p.n == p.next {
		p.next += between
		runtime.Gosched()
		switch now := time.Now(); {
		case p.since.IsZero():
			p.since = now
		case now.Sub(p.since) > lookFor:
			return false
		}
	}
	return p.n <= word.Spins(p.spins)
}

// OnWait implements backend.Comm.
func (c *Comm) OnWait(f, _ func()) { c.me.crew.OnWait = f }

// Await implements backend.Comm.
func (c *Comm) Await(b *backend.Bound, p backend.Pending) error {
	for look := c.group.job.patience(); !p.Ready(); c.me.receive() {
		if !look.more() {
			return c.sleep(b, p)
		}
	}
	return nil
}

// sleep is Await that does not spin. Meanwhile senders leave no messages in the ring.
func (c *Comm) sleep(b *backend.Bound, p backend.Pending) error {
	if q := c.me.ring; q != nil {
		q.asleep.Add(1)
		defer q.asleep.Add(-1)
		c.me.lock()
		c.me.mu.Unlock()
	}
	return c.me.crew.AwaitPending(b, p)
}

// Poll implements backend.Comm. It delivers the messages in the ring, and lets other ranks run.
func (c *Comm) Poll() {
	c.me.receive()
	word.Yield()
}

// Wake implements backend.Comm.
func (c *Comm) Wake() { c.me.crew.Ask() }
