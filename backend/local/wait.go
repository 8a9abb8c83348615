package local

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

const (
	spins   = 4096                   // checks before parking, some microseconds
	between = 64                     // checks between yields
	lookFor = 200 * time.Microsecond // at most, as yields may take long
	yields  = 2                      // checks, each after a yield, if ranks share processors
)

// patience counts how often a waiter checks before it parks. Ranks spin if each has a
// processor. Otherwise the ranks waited for may need this one's.
type patience struct {
	spins, n int
	since    time.Time // of the first yield
}

func (j *job) patience() patience { return patience{spins: j.spins} }

// more reports whether to check once more.
func (p *patience) more() bool {
	p.n++
	if p.spins == 0 {
		runtime.Gosched()
		return p.n <= word.Spins(yields)
	}
	if p.n%between == 0 {
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

// sleeper is what a goroutine parks on. A late wake of an earlier use may end its sleep, so the goroutine looks
// again for what it waits for.
type sleeper struct {
	*word.Parker
	p backend.Pending // in Await: what it waits for
}

// sleepers are goroutines of a rank that are parked, or about to be.
type sleepers struct {
	n    word.Int32 // the length of list
	mu   word.Mutex // guards list
	list []*sleeper
}

// add enters s. Its goroutine looks for what it waits for after that.
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

// completed wakes the goroutines in Await that need not wait any more.
func (l *sleepers) completed() { l.wake(func(s *sleeper) bool { return s.p != nil && s.p.Ready() }) }

// all wakes all goroutines that are listed.
func (l *sleepers) all() { l.wake(func(*sleeper) bool { return true }) }

func (l *sleepers) wake(which func(*sleeper) bool) {
	if l.n.Load() == 0 {
		return
	}
	l.mu.Lock()
	for _, s := range l.list {
		if which(s) {
			s.Unpark()
		}
	}
	l.mu.Unlock()
}

// sleep parks on s until p is ready, or the time of b is over for an operation that began at start. Whoever
// makes p ready, or ends the context, unparks s afterwards, which is listed if that is not known otherwise.
func (r *rank) sleep(b *backend.Bound, start time.Time, s *sleeper, p backend.Pending) error {
	s.Drop()
	if s.p != nil || b != nil && b.Ctx != nil {
		r.sleepers.add(s)
		defer r.sleepers.remove(s)
	}
	for !p.Ready() {
		if err := b.Err(start); err != nil {
			return err
		}
		var limit time.Duration
		if d, ok := b.Deadline(start); ok {
			limit = max(time.Until(d), 1)
		}
		s.Park(limit)
	}
	return nil
}

// OnWait implements backend.Comm.
func (c *Comm) OnWait(f, _ func()) { c.me.onWait = f }

// waits reports that an operation of the rank begins to wait.
func (r *rank) waits() {
	if r.onWait != nil {
		r.onWait()
	}
}

var waiters = sync.Pool{New: func() any { return &sleeper{Parker: word.NewParker()} }}

// Await implements backend.Comm.
func (c *Comm) Await(b *backend.Bound, p backend.Pending) error {
	for look := c.group.job.patience(); !p.Ready(); {
		if !look.more() {
			c.me.waits()
			return c.me.await(b, began(b), p)
		}
	}
	return nil
}

func (r *rank) await(b *backend.Bound, start time.Time, p backend.Pending) error {
	s := waiters.Get().(*sleeper)
	s.p = p
	defer func() {
		s.p = nil
		waiters.Put(s)
	}()
	return r.sleep(b, start, s, p)
}

// began returns the time if b needs it.
func began(b *backend.Bound) time.Time {
	if b.Limited() {
		return time.Now()
	}
	return time.Time{}
}

// Poll implements backend.Comm. Operations progress without it. It lets other ranks
// run.
func (c *Comm) Poll() { word.Yield() }

// Wake implements backend.Comm. A goroutine that is not listed is woken by what it waits for.
func (c *Comm) Wake() { c.me.sleepers.all() }
