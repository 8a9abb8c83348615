package wait

import (
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/word"
)

// Crew is the set of goroutines of a process that wait for messages, or for other ranks. One of them leads: it makes
// progress for all, and sleeps on the links when there is no progress to make. The others follow: each sleeps on its
// own parker.
//
// The lock guards the members and their states. Without it, goroutines read only asleep. A member that is about to
// sleep counts itself in asleep, and then looks whether it is ready. A goroutine that has made a member ready looks at
// asleep afterwards (Ask).
//
// Invariant: a member that is ready does not sleep once Ask has returned. While members follow, one member leads, or is
// chosen to lead and has been woken.
//
//	from       event                                               to
//	outside    it begins to wait, and nobody leads                 leading
//	outside    it begins to wait, and the leader is only chosen    leading; the chosen one follows again
//	outside    it begins to wait, and another one leads            following
//	following  it is found ready, or its time is over              outside
//	following  the leader leaves, and it has waited longest        chosen (after Shut, Shut's own member instead)
//	chosen     it wakes up                                         leading
//	leading    there is no progress to make                        resting
//	resting    it is found ready, is rung, or wakes up             leading
//	leading    it is ready, or its time is over                    outside; the next follower is chosen
//
// A follower that becomes chosen, or is found ready, is woken. A leader in the background (Attend) gives its place up
// when it wakes up.
type Crew struct {
	Links   Links
	LookFor func(backend.Pending) bool // Waiter.Look for AwaitPending; nil: there is nothing to look at
	OnWait  func()                     // called before AwaitPending sleeps for the first time, unless nil

	spare word.Pointer[operation] // for the next AwaitPending

	mu     word.Mutex
	asleep word.Int32 // the number of followers, plus aLeader if the leader is resting
	leader *Member    // nil: nobody leads
	last   *Member    // Shut's member, which leads for good when the leader leaves; nil before Shut
	first  *Member    // the followers, the one that has waited longest first
	end    *Member
}

// aLeader is more than the number of followers.
const aLeader = 1 << 24

// Links are what the leader sleeps on. Only the leader calls Arm, Check, Sleep and Disarm, in this order.
type Links interface {
	// Arm announces the sleep to other processes: their news ring from now on.
	Arm()
	// Check makes progress once more, and reports whether there was any. If so, the leader does not sleep.
	Check() (moved bool)
	// Sleep sleeps until something rings, or has rung since Arm, for at most timeout if that is above 0.
	Sleep(timeout time.Duration)
	// Disarm takes the announcement back.
	Disarm()
	// Ring ends the leader's sleep. It is called between Arm and the time after Sleep.
	Ring()
}

// Waiter is what one member waits for.
type Waiter interface {
	// Ready reports whether the member need not wait any more. While the member sleeps, other goroutines call it, one
	// at a time, with the crew's lock held.
	Ready() bool
	// Look makes progress until the member is ready, for a bounded time, and reports whether it is ready.
	Look() bool
	// Limit is called before every sleep. It returns how long the sleep may last, 0 for no limit, and false if the
	// member's time is over.
	Limit() (time.Duration, bool)
}

// Member is one goroutine's place in a crew. It can be used for several waits, one after the other.
type Member struct {
	w          Waiter
	state      state
	background bool
	leave      bool // it leads in the background, and another member wants its place
	next, prev *Member
	parker     *word.Parker
}

type state uint8

const (
	outside state = iota
	following
	chosen
	leading
	resting
)

// NewMember returns a member that waits for w.
func NewMember(w Waiter) *Member { return &Member{w: w, parker: word.NewParker()} }

// Await returns when the member is ready, or its time is over.
func (c *Crew) Await(m *Member) {
	c.mu.Lock()
	if c.leader != nil && c.leader.background { // it needs a while to leave
		c.relieve()
		c.mu.Unlock()
		if m.w.Look() {
			return
		}
		c.mu.Lock()
	}
	for c.join(m); m.state != outside; {
		if m.state == following {
			c.mu.Unlock()
			limit, left := m.w.Limit()
			if left {
				m.parker.Park(limit)
			}
			c.mu.Lock()
			if !left {
				c.quit(m)
			}
			continue
		}
		m.state = leading
		c.mu.Unlock()
		done := m.w.Look()
		if !done {
			limit, left := m.w.Limit()
			done = !left || c.rest(m, limit)
		}
		c.mu.Lock()
		switch {
		case done:
			c.quit(m)
		case c.last != nil:
			c.quit(m)
			c.join(m)
		}
	}
	c.mu.Unlock()
}

// Attend leads in the background until something rings or m is ready, unless another member leads. It returns true if
// it led and no other member wants its place. A member is used for Attend or for Await, never for both.
func (c *Crew) Attend(m *Member) bool {
	c.mu.Lock()
	if c.leader != nil {
		c.mu.Unlock()
		return false
	}
	c.leader, m.state, m.background, m.leave = m, leading, true, false
	c.mu.Unlock()
	c.rest(m, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quit(m)
	return !m.leave
}

// Shut takes the leader's place for good: nobody sleeps on the links any more.
func (c *Crew) Shut() {
	m := NewMember(nil)
	c.mu.Lock()
	if c.last = m; c.leader == nil {
		c.succeed()
	}
	c.relieve()
	for m.state != chosen {
		c.mu.Unlock()
		m.parker.Park(0)
		c.mu.Lock()
	}
	m.state = leading
	c.mu.Unlock()
}

// Ask wakes the members that are ready. The caller has published what makes them ready, by atomic operations.
func (c *Crew) Ask() {
	if !c.Sleeps() {
		return
	}
	c.mu.Lock()
	c.ask()
	if l := c.leader; l != nil && l.state == resting && l.w.Ready() {
		c.rouse()
	}
	c.mu.Unlock()
}

// Rouse makes the leader look at the links if it sleeps.
func (c *Crew) Rouse() {
	if c.Rests() {
		c.mu.Lock()
		c.rouse()
		c.mu.Unlock()
	}
}

// Sleeps reports whether a member sleeps, or is about to. If it returns false, each member looks once more before it
// sleeps.
func (c *Crew) Sleeps() bool { return c.asleep.Load() != 0 }

// Rests reports whether the leader sleeps, or is about to.
func (c *Crew) Rests() bool { return c.asleep.Load() >= aLeader }

// rest lets the leader sleep on the links, and reports whether it is ready afterwards.
func (c *Crew) rest(m *Member, limit time.Duration) bool {
	c.Links.Arm()
	c.mu.Lock()
	c.asleep.Add(aLeader)
	m.state = resting
	c.ask() // what a follower waits for may have come before Arm, and then nothing has rung
	if m.leave || c.last != nil || m.w.Ready() {
		c.awake(m)
	}
	sleeps := m.state == resting
	c.mu.Unlock()
	if sleeps && !c.Links.Check() {
		c.Links.Sleep(limit)
	}
	c.Links.Disarm()
	c.mu.Lock()
	c.awake(m)
	c.ask() // what has rung may be news for a follower
	c.mu.Unlock()
	return m.w.Ready()
}

// The methods below are called with the lock held.

// rouse ends the leader's sleep.
func (c *Crew) rouse() {
	if l := c.leader; l != nil && l.state == resting {
		c.awake(l)
		c.Links.Ring()
	}
}

// awake ends the state resting of the leader.
func (c *Crew) awake(m *Member) {
	if m.state == resting {
		m.state = leading
		c.asleep.Add(-aLeader)
	}
}

// relieve asks a leader in the background for its place, and wakes the leader.
func (c *Crew) relieve() {
	c.leader.leave = c.leader.background
	c.rouse()
}

// ask wakes the followers that are ready.
func (c *Crew) ask() {
	for m := c.first; m != nil; {
		next := m.next
		if m.w.Ready() {
			c.remove(m)
			m.parker.Unpark()
		}
		m = next
	}
}

// join gives m its place in the crew.
func (c *Crew) join(m *Member) {
	l := c.leader
	if l == nil || l.state == chosen && l != c.last {
		c.leader, m.state = m, leading
		if l != nil { // it need not wake up to lead
			c.follow(l)
		}
		return
	}
	if l.background { // again: it may have begun another sleep
		c.relieve()
	}
	c.follow(m)
}

// follow makes m a follower, unless it is ready.
func (c *Crew) follow(m *Member) {
	c.asleep.Add(1)
	m.state, m.prev, m.next = following, c.end, nil
	if c.end != nil {
		c.end.next = m
	} else {
		c.first = m
	}
	c.end = m
	if m.w.Ready() {
		c.remove(m)
	}
}

// remove takes m out of the followers.
func (c *Crew) remove(m *Member) {
	c.asleep.Add(-1)
	m.state = outside
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		c.first = m.next
	}
	if m.next != nil {
		m.next.prev = m.prev
	} else {
		c.end = m.prev
	}
	m.next, m.prev = nil, nil // they would keep other operations, and their engines, in memory
}

// quit ends m's wait.
func (c *Crew) quit(m *Member) {
	switch m.state {
	case following:
		c.remove(m)
	case chosen, leading:
		m.state = outside
		c.succeed()
	}
}

// succeed fills the leader's place.
func (c *Crew) succeed() {
	next := c.last
	if next == nil {
		next = c.first
		if next != nil {
			c.remove(next)
		}
	}
	if c.leader = next; next != nil {
		next.state = chosen
		next.parker.Unpark()
	}
}
