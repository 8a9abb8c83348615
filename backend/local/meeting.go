package local

import (
	"runtime"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
)

// meeting is where the ranks of a communicator wait for each other, any number
// of times. Nothing is ever reset: the k-th meeting is over when epoch is k.
type meeting struct {
	_       [64]byte
	count   atomic.Uint64 // arrivals at all meetings
	_       [56]byte
	epoch   atomic.Uint64 // meetings that are over; with stopped, there will be no more
	parked  atomic.Int32  // ranks that may have to be woken
	_       [52]byte
	verdict error  // of the last meeting; written by its last arriver before epoch
	result  []byte // of a reduction that the last arriver made, likewise
}

const stopped = 1 << 63

// stop ends the meetings: one in progress will not be over.
func (m *meeting) stop() { m.epoch.Or(stopped) }

// over reports whether the k-th meeting is over, and if not, whether it never
// will be.
func (m *meeting) over(k uint64) (over, never bool) {
	e := m.epoch.Load()
	return e&^stopped >= k, e&stopped != 0
}

// slot is a rank's place at the meetings of its communicator.
type slot struct {
	epoch   atomic.Uint64 // meetings arrived at
	asleep  atomic.Bool
	reading atomic.Bool // it may be reading other ranks' buffers
	gone    atomic.Bool // it has closed the communicator
	unasked atomic.Int32
	making  atomic.Int64 // the call in progress, or the last one: 2*tag+turn%2, see suspect
	sleeper
	posts [2]post // of the calls in turn
	_     [64]byte
}

// post is what a rank shows the others of its call. It is written before the
// rank arrives and stays until the rank's call after the next, when all ranks
// have left the meetings of this one.
type post struct {
	print backend.Fingerprint
	call  *backend.Call // nil if the input is posted
	data  []byte        // a copy of the input
	work  []byte        // shared by package direct
	bad   error         // brought to the next meeting
}

// arrive counts this rank in at its next meeting. The last one to come runs
// conclude, whose error ends the communicator, and lets the others go. It
// returns nil when the meeting is over.
func (c *Comm) arrive(conclude func(*Comm) error) error {
	g := c.group
	k := c.slot.epoch.Load() + 1
	c.slot.epoch.Store(k)
	if c.slot.unasked.Load() > 0 {
		c.overlook()
	}
	if g.meet.count.Add(1) != k*uint64(len(g.slots)) {
		return c.linger(k)
	}
	if err := conclude(c); err != nil {
		c.Break(err)
		return c.stopped()
	}
	if !g.meet.epoch.CompareAndSwap(k-1, k) {
		return c.stopped()
	}
	if g.meet.parked.Load() > 0 {
		for i := range g.slots {
			if s := &g.slots[i]; s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
				s.wake()
			}
		}
	}
	return nil
}

// linger waits until the k-th meeting is over.
func (c *Comm) linger(k uint64) error {
	m := &c.group.meet
	for look := c.group.job.patience(); look.more(); {
		if over, never := m.over(k); over {
			return nil
		} else if never {
			return c.stopped()
		}
	}
	return c.parkAt(k)
}

// parkAt is linger without patience.
func (c *Comm) parkAt(k uint64) error {
	g, s, b := c.group, c.slot, c.bound
	m := &g.meet
	c.me.waits()
	m.parked.Add(1)
	defer m.parked.Add(-1)
	if b.Limited() {
		c.me.sleepers.add(&s.sleeper, false)
		defer c.me.sleepers.remove(&s.sleeper)
	}
	start := began(b)
	for {
		s.asleep.Store(true)
		if over, never := m.over(k); over || never {
			s.asleep.Store(false)
			if over {
				return nil
			}
			return c.stopped()
		}
		if err := b.Err(start); err != nil {
			return c.giveUp(k, note(err, rankList(c.missing(k))+" had not arrived"))
		}
		if gone := c.missingGone(k); gone >= 0 {
			return c.giveUp(k, g.left(gone))
		}
		if c.closed.Load() { // by another goroutine
			if c.giveUp(k, g.left(c.rank)) == nil {
				return nil
			}
			return &backend.Fault{Sentinel: backend.ErrClosed}
		}
		s.sleep(b, start)
	}
}

// giveUp ends the communicator with err, unless the k-th meeting is over all the
// same.
func (c *Comm) giveUp(k uint64, err error) error {
	if !c.group.meet.epoch.CompareAndSwap(k-1, k-1|stopped) {
		if over, _ := c.group.meet.over(k); over {
			return nil
		}
	}
	c.Break(err)
	return c.stopped()
}

// stopped returns why there are no more meetings. Who stopped them says so at
// once.
func (c *Comm) stopped() error {
	for {
		if e := c.group.end.Load(); e != nil {
			return e.cause
		}
		runtime.Gosched()
	}
}

// missing returns the ranks that have not arrived at the k-th meeting.
func (c *Comm) missing(k uint64) []int {
	var ranks []int
	for i := range c.group.slots {
		if c.group.slots[i].epoch.Load() < k {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// missingGone returns a rank that will not arrive at the k-th meeting because it
// has closed the communicator, -1 if there is none.
func (c *Comm) missingGone(k uint64) int {
	if c.group.gone.Load() > 0 {
		for i := range c.group.slots {
			if s := &c.group.slots[i]; s.gone.Load() && s.epoch.Load() < k {
				return i
			}
		}
	}
	return -1
}

// leaveAlone waits until no rank reads this one's buffers, once the communicator
// has ended: from then on none begins to.
func (c *Comm) leaveAlone() {
	for i := range c.group.slots {
		for c.group.slots[i].reading.Load() {
			runtime.Gosched()
		}
	}
}

// suspect is told of a message to dest that belongs to a collective run with
// messages and that dest has not asked for. If its tag is the one that announces
// the collective that dest waits in here, the ranks' calls differ.
func (c *Comm) suspect(dest, tag int, msg []byte) {
	s := &c.group.slots[dest]
	if s.making.Load()>>1 == int64(tag) && dest != c.rank {
		c.differ(dest, msg, c.rank)
	}
}

// overlook looks for such messages to this rank that came before.
func (c *Comm) overlook() {
	env := c.pattern(backend.AnySource, int(c.slot.making.Load()>>1))
	c.me.mu.Lock()
	n := c.me.arrived.FindArrived(env)
	if n == nil {
		c.me.mu.Unlock()
		return
	}
	msg := append([]byte(nil), owner(n).buf...)
	c.me.mu.Unlock()
	c.differ(c.rank, msg, int(c.group.index[n.Env.Source]))
}

// differ breaks the communicator because rank waits for the others here while
// sender has sent msg for the same collective in another form.
func (c *Comm) differ(rank int, msg []byte, sender int) {
	g := c.group
	s := &g.slots[rank]
	// The post stays: without sender the collective cannot end but by Break.
	print := s.posts[s.making.Load()&1].print
	seen, err := backend.See(rank, print), error(nil)
	if other, ok := backend.DecodeSeen(msg, len(g.slots)); ok {
		seen.Merge(other)
		err = seen.Err()
	}
	if err == nil {
		err = faultf(backend.ErrMismatch, "rank %d called %v, rank %d makes it with messages", rank, print, sender)
	}
	c.Break(err)
}
