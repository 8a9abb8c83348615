package local

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

const (
	spins   = 4096 // checks before parking, some microseconds
	between = 64   // checks between yields
	yields  = 2    // checks, each after a yield, if ranks share processors
)

// patience counts how often a waiter checks before it parks. Ranks spin if each has a
// processor. Otherwise the ranks waited for may need this one's.
type patience struct {
	spins, n int
}

func (j *job) patience() patience { return patience{spins: j.spins} }

// more reports whether to check once more.
func (p *patience) more() bool {
	p.n++
	if p.spins == 0 {
		runtime.Gosched()
		return p.n <= yields
	}
	if p.n%between == 0 {
		runtime.Gosched()
	}
	return p.n <= p.spins
}

// sleeper is what a goroutine parks on. A token may be left over from an earlier use,
// so a goroutine that wakes checks again for what it waits for.
type sleeper struct {
	token chan struct{} // capacity 1
	timer *time.Timer   // made by the first wait that has a timeout
}

func (s *sleeper) init() { s.token = make(chan struct{}, 1) }

// wake makes the goroutine on s check again.
func (s *sleeper) wake() {
	select {
	case s.token <- struct{}{}:
	default: // a token is there already
	}
}

// sleep parks until s is woken or it may be time for b to end the wait, which
// began at start.
func (s *sleeper) sleep(b *backend.Bound, start time.Time) {
	if !b.Limited() {
		<-s.token
		return
	}
	var done <-chan struct{}
	if b.Ctx != nil {
		done = b.Ctx.Done()
	}
	var alarm <-chan time.Time
	if end, timed := b.Deadline(start); timed {
		left := max(0, time.Until(end))
		if s.timer == nil {
			s.timer = time.NewTimer(left)
		} else {
			s.timer.Reset(left)
		}
		defer s.timer.Stop()
		alarm = s.timer.C
	}
	select {
	case <-s.token:
	case <-done:
	case <-alarm:
	}
}

// OnWait implements backend.Comm.
func (c *Comm) OnWait(f, _ func()) { c.me.onWait = f }

// waits reports that an operation of the rank begins to wait.
func (r *rank) waits() {
	if r.onWait != nil {
		r.onWait()
	}
}

// sleepers are the goroutines of a rank that wait for any of its operations to
// complete, or for a message.
type sleepers struct {
	n    atomic.Int32 // the length of list
	mu   sync.Mutex   // guards list
	list []*sleeper
}

// add enters s. Its goroutine checks what it waits for after that.
func (l *sleepers) add(s *sleeper) {
	l.mu.Lock()
	l.list = append(l.list, s)
	l.n.Add(1)
	l.mu.Unlock()
}

func (l *sleepers) remove(s *sleeper) {
	l.mu.Lock()
	i := slices.Index(l.list, s)
	l.list = slices.Delete(l.list, i, i+1)
	l.n.Add(-1)
	l.mu.Unlock()
}

// completed wakes the goroutines if there are any.
func (l *sleepers) completed() {
	if l.n.Load() > 0 {
		l.wake()
	}
}

func (l *sleepers) wake() {
	l.mu.Lock()
	for _, s := range l.list {
		s.wake()
	}
	l.mu.Unlock()
}

var waiters = sync.Pool{New: func() any {
	s := new(sleeper)
	s.init()
	return s
}}

// Await implements backend.Comm.
func (c *Comm) Await(b *backend.Bound, p backend.Pending) error {
	if p.Ready() {
		return nil
	}
	for look := c.group.job.patience(); look.more(); {
		if p.Ready() {
			return nil
		}
	}
	c.me.waits()
	s := waiters.Get().(*sleeper)
	c.me.sleepers.add(s)
	defer func() {
		c.me.sleepers.remove(s)
		waiters.Put(s)
	}()
	for start := began(b); !p.Ready(); s.sleep(b, start) {
		if err := b.Err(start); err != nil && !p.Ready() {
			return err
		}
	}
	return nil
}

// began returns the time if b needs it.
func began(b *backend.Bound) time.Time {
	if b != nil && b.Timeout > 0 {
		return time.Now()
	}
	return time.Time{}
}

// Poll implements backend.Comm. Operations progress without it. It lets other ranks
// run.
func (c *Comm) Poll() { runtime.Gosched() }

// Wake implements backend.Comm.
func (c *Comm) Wake() { c.me.sleepers.completed() }
