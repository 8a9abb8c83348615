package local

import (
	"cmp"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// arrivals is where the ranks of a communicator wait for each other, in numbered rounds. A rank arrives in round k by
// storing k in a line of its own, after everything else that it publishes.
//
//	round of a line  its rank, when it arrives: the number of the round
//	count            every rank, when it has arrived, unless each
//	complete         the last rank to arrive: the number of the round, unless each
//	parked           a rank that is about to sleep, before it looks again; and when it has woken up
//	ended            a rank that ends the rounds: deciding, and then decided and the number of the last complete round
//
// Where every rank has a processor (each), a rank looks at the lines of all others and draws the conclusion itself: one
// cache line of every rank changes hands. Otherwise the last rank to arrive draws it for all.
//
// Invariant: a round is complete on all ranks or on none. A rank looks at ended when it has arrived and has found the
// round complete. So it learns that the rounds have ended, or the rank that ends them finds the round complete too.
type arrivals struct {
	each     bool   // every rank has a processor
	lines    []line // lineDeep of each rank, used in turn
	_        [64]byte
	count    word.Uint64 // arrivals in all rounds
	_        [56]byte
	complete word.Uint64
	_        [56]byte
	ended    word.Uint64 // 0: the rounds go on
	parked   word.Int32  // ranks that sleep, or are about to
	_        [52]byte
	verdict  error  // of the last round; written by the last rank to arrive, before complete, unless each
	result   []byte // of a reduction that the last rank to arrive computed, likewise
}

const (
	lineBits = 2
	lineDeep = 1 << lineBits // round k+1 uses the line of round k-3 again, which no rank reads any more in round k
	smallMax = 32

	deciding = 1
	decided  = 2 // more than rounds are complete
	never    = 1<<64 - 1 - decided

	// After how many checks a rank yields for the first time: soon, if the last wait has lasted until a yield, because the
	// ranks have got one processor only. One wait of trialEvery finds out whether they still have.
	parallel   = 512
	shared     = 16
	trialEvery = 64
)

// line is a cache line: a rank's arrival in a round, with what it publishes of the call whose first round this is.
type line struct {
	round word.Uint64
	print backend.Fingerprint
	small [smallMax]byte // a copy of the input, if that of no rank is longer
}

// line returns a rank's line for round k.
func (m *arrivals) line(rank int, k uint64) *line { return &m.lines[rank*lineDeep+int(k%lineDeep)] }

// round returns the last round in which a rank has arrived.
func (m *arrivals) round(rank int) (k uint64) {
	for i := range uint64(lineDeep) {
		k = max(k, m.line(rank, i).round.Load())
	}
	return k
}

// all reports whether all ranks have arrived in round k.
func (m *arrivals) all(k uint64) bool {
	if !m.each {
		return m.complete.Load() >= k
	}
	for i := 0; i < len(m.lines); i += lineDeep {
		if m.lines[i+int(k%lineDeep)].round.Load() != k {
			return false
		}
	}
	return true
}

// done reports whether round k, in which the caller has arrived, is complete, and if not, whether it never will be.
func (m *arrivals) done(k uint64) (done, never bool) {
	done = m.all(k)
	e := m.ended.Load()
	for ; e == deciding; e = m.ended.Load() {
		word.Yield()
	}
	if e >= decided {
		return e-decided >= k, true
	}
	return done, false
}

// stop ends the rounds, unless round k is complete. Round never is not.
func (m *arrivals) stop(k uint64) {
	for !m.ended.CompareAndSwap(0, deciding) {
		switch e := m.ended.Load(); {
		case e >= decided:
			return
		case e == deciding:
			word.Yield()
		}
	}
	last := m.complete.Load()
	if m.each {
		last = never
		for i := range len(m.lines) / lineDeep {
			last = min(last, m.round(i))
		}
	}
	if last >= k {
		m.ended.Store(0)
	} else {
		m.ended.Store(decided + last)
	}
}

// slot is what the others see of a rank in its communicator besides its lines.
type slot struct {
	_        [0]word.Uint64 // aligns making where pointers have 32 bits, too
	making   uint64         // the call in progress, or the last one: its tag times lineDeep, and its line; see suspect
	gone     word.Bool      // it has closed the communicator, has left the job, or is lost; see group
	notifies word.Bool      // it has posted a receive with a Notify that takes a program's messages; see ring
	_        [44]byte
	calls    [2]publishedCall // used in turn
	rounds   [2]struct {      // used in turn
		bad  error  // this rank's error in the step before the round
		work []byte // direct.Work
	}
	_ [64]byte
}

// publishedCall is what a rank publishes of its call besides, if its input is not small. It is written before the rank
// arrives and stays until the rank's call after the next, when all ranks have left the rounds of this one.
type publishedCall struct {
	call *backend.Call // nil if the input is a copy
	bufs [2][]byte     // direct.In and direct.Out
	data []byte        // for a copy of the input, which may be shorter
}

// arrive counts this rank in for its next round. When the round is complete, it returns the verdict of conclude, which is
// the same on all ranks.
func (c *Comm) arrive(conclude func(*Comm) error) error {
	m := &c.group.arrivals
	c.round++
	k := c.round
	m.line(c.rank, k).round.Store(k)
	last := !m.each && m.count.Add(1) == k*uint64(len(c.group.ends))
	if last {
		m.verdict = conclude(c)
		m.complete.Store(k)
	}
	if err := c.waitRound(k); err != nil {
		return err
	}
	if (last || m.each) && m.parked.Load() > 0 {
		for i := range c.group.ends {
			c.group.ends[i].me.crew.Ask()
		}
	}
	if m.each {
		return conclude(c)
	}
	return m.verdict
}

// waitRound waits until round k, in which this rank has arrived, is complete.
func (c *Comm) waitRound(k uint64) error {
	g, m := c.group, &c.group.arrivals
	look := g.job.patience()
	if look.next = parallel; c.shares && c.waits%trialEvery != 0 {
		look.next = shared
	}
	first := look.next
	for !m.all(k) && look.more() {
	}
	if look.n > 0 {
		c.shares = look.n >= first
		c.waits++
	}
	var late error
	if !m.all(k) {
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
		why := "all ranks have arrived, and the last one was reducing" // see combined
		if missing := c.missing(k); len(missing) > 0 {
			why = backend.RankList(missing) + " had not arrived"
		}
		return c.giveUp(k, backend.While(late, why))
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
	m := &c.group.arrivals
	return m.all(c.round) || m.ended.Load() >= decided || c.gone.Load() || c.missingGone() >= 0
}

// giveUp ends the communicator with err, unless round k has completed meanwhile.
func (c *Comm) giveUp(k uint64, err error) error {
	c.group.arrivals.stop(k)
	if done, _ := c.group.arrivals.done(k); done {
		return nil
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
		if c.group.arrivals.round(i) < k {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// missingGone returns a rank that will not arrive in this rank's round because it has closed the communicator,
// or -1.
func (c *Comm) missingGone() int {
	if c.group.gone.Load() > 0 {
		for i := range c.group.ends {
			if c.group.ends[i].gone.Load() && c.group.arrivals.round(i) < c.round {
				return i
			}
		}
	}
	return -1
}

// grace is how long the copy of a long message, or a user's operation on another rank, may go on using this rank's buffers
// after the deadline.
var grace = backend.Grace

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
	if callTag(word.LoadUint64(&c.group.ends[dest].making)) == tag && dest != c.rank {
		c.differ(dest, msg, c.rank)
	}
}

// callTag returns the tag in a slot's making.
func callTag(making uint64) int { return int(int64(making) >> lineBits) }

// overlook checks such messages to this rank that arrived before it did.
func (c *Comm) overlook() {
	c.me.lock()
	n := c.me.arrived.FindArrived(c.pattern(backend.AnySource, callTag(c.making)))
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
	// The published call stays: without sender only Break can end the collective.
	print := g.arrivals.line(rank, word.LoadUint64(&g.ends[rank].making)).print
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
