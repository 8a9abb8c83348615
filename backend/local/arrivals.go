package local

import (
	"cmp"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// arrivals is where the ranks of a communicator wait for each other, in numbered
// rounds. Nothing is ever reset: round k is complete when epoch is k.
type arrivals struct {
	_       [64]byte
	count   word.Uint64 // arrivals in all rounds
	_       [56]byte
	epoch   word.Uint64 // rounds that are complete; with stopped, there will be no more, and it exceeds all
	parked  word.Int32  // ranks that sleep, or are about to
	_       [52]byte
	verdict error  // of the last round; written by the last rank to arrive, before epoch
	result  []byte // of a reduction that the last rank to arrive computed, likewise
}

const stopped = 1 << 63

// stop ends the rounds: one in progress will not complete.
func (m *arrivals) stop() { m.epoch.Or(stopped) }

// done reports whether round k is complete, and if not, whether it never will be.
func (m *arrivals) done(k uint64) (done, never bool) {
	e := m.epoch.Load()
	return e&^stopped >= k, e&stopped != 0
}

// slot is a rank's arrival slot in its communicator.
type slot struct {
	epoch  word.Uint64 // the round it arrived in last
	gone   word.Bool   // it has closed the communicator, has left the job, or is lost; see group
	making word.Int64  // the call in progress, or the last one: 2*tag+round%2, see suspect
	_      [32]byte
	calls  [2]publishedCall // of the calls in round
	_      [64]byte
}

// publishedCall is what a rank publishes of its call. It is written before the rank
// arrives and stays until the rank's call after the next, when all ranks have left
// the rounds of this one.
type publishedCall struct {
	print backend.Fingerprint
	call  *backend.Call // nil if the input is a copy
	bufs  [3][]byte     // by direct.Space
	data  []byte        // for a copy of the input
	bad   error         // this rank's error for the next round
}

// arrive counts this rank in for its next round. The last rank to arrive runs
// conclude, whose error ends the communicator, and releases the others. arrive
// returns nil when the round is complete.
func (c *Comm) arrive(conclude func(*Comm) error) error {
	g := c.group
	k := c.epoch.Load() + 1
	c.epoch.Store(k)
	if g.arrivals.count.Add(1) != k*uint64(len(g.ends)) {
		return c.waitRound(k)
	}
	if err := conclude(c); err != nil {
		c.Break(err)
		return c.stopped()
	}
	if !g.arrivals.epoch.CompareAndSwap(k-1, k) {
		return c.stopped()
	}
	if g.arrivals.parked.Load() > 0 {
		for i := range g.ends {
			g.ends[i].me.crew.Ask()
		}
	}
	return nil
}

// waitRound waits until round k, in which this rank has arrived, is complete.
func (c *Comm) waitRound(k uint64) error {
	g, m := c.group, &c.group.arrivals
	look := g.job.patience()
	for m.epoch.Load() < k && look.more() {
	}
	var late error
	if m.epoch.Load() < k {
		c.overlook()
		m.parked.Add(1)
		late = c.me.crew.AwaitPending(c.bound, (*round)(c))
		m.parked.Add(-1)
		late = cmp.Or(late, c.bound.Err(time.Time{})) // a rank may have left because its time was over too
		if c.gone.Load() {                            // a closed communicator's contexts have ended
			late = nil
		}
	}
	switch done, never := m.done(k); {
	case done:
		return nil
	case never:
		return c.stopped()
	case late != nil:
		return c.giveUp(k, backend.While(late, backend.RankList(c.missing(k))+" had not arrived"))
	}
	if gone := c.missingGone(); gone >= 0 {
		return c.giveUp(k, g.left(gone))
	}
	if c.giveUp(k, g.left(c.rank)) == nil { // another goroutine has closed the communicator
		return nil
	}
	return g.own(c.rank)
}

// round is a rank's wait for the others.
type round Comm

// Ready implements backend.Pending: the round is complete, or cannot become so.
func (r *round) Ready() bool {
	c := (*Comm)(r)
	return c.group.arrivals.epoch.Load() >= c.epoch.Load() || c.gone.Load() || c.missingGone() >= 0
}

// giveUp ends the communicator with err, unless round k has completed meanwhile.
func (c *Comm) giveUp(k uint64, err error) error {
	if !c.group.arrivals.epoch.CompareAndSwap(k-1, k-1|stopped) {
		if done, _ := c.group.arrivals.done(k); done {
			return nil
		}
	}
	c.Break(err)
	return c.stopped()
}

// stopped returns why there are no more rounds. The goroutine that stopped them sets
// the reason at once.
func (c *Comm) stopped() error {
	for {
		if e := c.group.end.Load(); e != nil {
			return e.cause
		}
		word.Yield()
	}
}

// missing returns the ranks that have not arrived in round k.
func (c *Comm) missing(k uint64) []int {
	var ranks []int
	for i := range c.group.ends {
		if c.group.ends[i].epoch.Load() < k {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// missingGone returns a rank that will not arrive in this rank's round because it has closed the communicator,
// or -1.
func (c *Comm) missingGone() int {
	k := c.epoch.Load()
	if c.group.gone.Load() > 0 {
		for i := range c.group.ends {
			if s := &c.group.ends[i].slot; s.gone.Load() && s.epoch.Load() < k {
				return i
			}
		}
	}
	return -1
}

// grace is how long the copy of a long message, or a user's operation on another rank, may go on using this rank's buffers
// after the deadline.
var grace = 20 * time.Millisecond

// waitUnread waits until no rank reads this one's buffers. It is called when the communicator has ended: no rank begins
// to read after that. It returns false if this rank's time is over and a user's operation on another rank does not end.
func (c *Comm) waitUnread() bool {
	user := c.call.Op != nil && c.call.Op.Code == backend.OpUser
	var late time.Time
	for c.group.readers.Shut(); !c.group.readers.Empty(); word.Yield() {
		switch {
		case !user || c.bound.Err(time.Time{}) == nil:
		case late.IsZero():
			late = time.Now()
		case time.Since(late) > grace:
			return false
		}
	}
	return true
}

// suspect checks a message to dest that belongs to a collective run with messages and
// that dest has not posted a receive for. If its tag is that of the collective that
// dest waits in here, the ranks' calls differ.
func (c *Comm) suspect(dest, tag int, msg []byte) {
	s := &c.group.ends[dest].slot
	if s.making.Load()>>1 == int64(tag) && dest != c.rank {
		c.differ(dest, msg, c.rank)
	}
}

// overlook checks such messages to this rank that arrived before it did.
func (c *Comm) overlook() {
	c.me.lock()
	n := c.me.arrived.FindArrived(c.pattern(backend.AnySource, int(c.making.Load()>>1)))
	if n == nil {
		c.me.mu.Unlock()
		return
	}
	msg, source := slices.Clone(owner(n).buf), c.group.RankOf(int(n.Env.Source))
	c.me.mu.Unlock()
	c.differ(c.rank, msg, source)
}

// differ breaks the communicator: rank waits for the others here, and sender has sent
// msg for the same collective in another form.
func (c *Comm) differ(rank int, msg []byte, sender int) {
	g := c.group
	s := &g.ends[rank].slot
	// The published call stays: without sender only Break can end the collective.
	print := s.calls[s.making.Load()&1].print
	seen, err := backend.See(rank, print), error(nil)
	if other, ok := backend.DecodeSeen(msg, len(g.ends)); ok {
		seen.Merge(other)
		err = seen.Err()
	}
	if err == nil {
		err = backend.Faultf(backend.ErrMismatch, "rank %d called %v, rank %d runs it with messages", rank, print, sender)
	}
	c.Break(err)
}
