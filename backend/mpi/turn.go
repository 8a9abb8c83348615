//go:build cgo && linux

package mpi

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A call of the library that makes a communicator, or makes or frees a window, waits for all members. Nothing ends it: no
// deadline, and no notice that the communicator is broken. So the members first meet, in messages on the communicator's
// ctl. They make the call only when all of them have promised to make it.
//
// The member with the lowest world rank decides. Each member, also this one, has a part in the meeting:
//
//	part      event                                                      to        message
//	-         the member comes                                           waiting   come to the decider
//	waiting   invite from the decider                                    invited
//	invited   the member has its process's turn                          promised  promise to the decider
//	any       its deadline, a broken or closed communicator, a lost rank leaving   leave to the decider
//	any       refuse from the decider: a member has left                 refused
//	any       call from the decider                                      calling
//
// At thread level multiple whoever comes has promised. At serialized the call excludes all others of its process, which
// has one turn. If rank 0 made one call and rank 1 another, both would wait without end. So the decider invites the
// members in the order of their world ranks, each once the one before has promised. Two meetings cannot wait for each
// other's turns then.
//
// The decider has the states of the members that take part. If one leaves it refuses all of them and forgets the meeting.
// Once all have promised, it tells all to call and forgets the meeting. A leave or promise of a member that does not take
// part is one that crossed the decider's answer. Messages between two members arrive in the order they were sent.
//
// Invariant: a member calls only if all members call. A member that takes part returns only after the decider's answer,
// or after the job or the decider has failed.
//
// The decider may have returned, with an error, before a member leaves. So each rank answers for all of its
// communicators when it waits, and the sampler answers at regular intervals (answerLeavers).

// Kinds of messages of a meeting.
const (
	come byte = iota
	promise
	leave // then why
	invite
	callNow
	refuse // then why
)

// stage is a state of a member's part.
type stage byte

const (
	waiting stage = iota
	invited
	promised
	leaving
	calling
	refused
)

// windowMeeting is the number of the meetings about windows. Those about communicators have the communicator's id.
const windowMeeting = 1 << 32

// part is this rank's part in a meeting.
type part struct {
	meeting uint64
	decider int
	stage   stage
	why     []byte // of refused
}

// meeting is what the decider knows.
type meeting struct {
	order  []int         // the members by world rank; nil: the decider has not come
	stages map[int]stage // of those that take part
}

// turns are a communicator's meetings.
type turns struct {
	mu       sync.Mutex // guards all, and is held while a message is received
	rank     int
	ordered  bool                        // the members are invited one by one
	send     func(to int, m []byte) bool // without waiting; false: the library cannot
	parts    map[uint64]*part
	meetings map[uint64]*meeting // in which this rank decides
}

func newTurns(rank int, ordered bool, send func(to int, m []byte) bool) turns {
	return turns{rank: rank, ordered: ordered, send: send, parts: map[uint64]*part{}, meetings: map[uint64]*meeting{}}
}

// say tells a member something. It returns false if the library cannot.
func (t *turns) say(to int, kind byte, number uint64, why []byte) bool {
	if to == t.rank {
		t.take(t.rank, kind, number, why)
		return true
	}
	return t.send(to, append(binary.LittleEndian.AppendUint64([]byte{kind}, number), why...))
}

// hear takes a message.
func (t *turns) hear(from int, m []byte) {
	t.take(from, m[0], binary.LittleEndian.Uint64(m[1:]), m[9:])
}

// come begins this rank's part in a meeting.
func (t *turns) come(number uint64, order []int) (p *part, ok bool) {
	p = &part{meeting: number, decider: order[0]}
	if !t.ordered {
		p.stage = promised
	}
	t.parts[number] = p
	if p.decider == t.rank {
		t.meetingOf(number).order = order
	}
	return p, t.say(p.decider, come, number, nil)
}

func (t *turns) promise(p *part) bool {
	p.stage = promised
	return t.say(p.decider, promise, p.meeting, nil)
}

func (t *turns) leave(p *part, why []byte) bool {
	p.stage = leaving
	return t.say(p.decider, leave, p.meeting, why)
}

func (t *turns) meetingOf(number uint64) *meeting {
	m := t.meetings[number]
	if m == nil {
		m = &meeting{stages: map[int]stage{}}
		t.meetings[number] = m
	}
	return m
}

// take handles a message.
func (t *turns) take(from int, kind byte, number uint64, why []byte) {
	if p := t.parts[number]; kind >= invite {
		switch {
		case p == nil: // it did not wait for the answer
		case kind != invite:
			p.stage, p.why = map[byte]stage{callNow: calling, refuse: refused}[kind], why
			delete(t.parts, number)
		case p.stage == waiting:
			p.stage = invited
		}
		return
	}
	m := t.meetings[number]
	if kind == come {
		m = t.meetingOf(number)
		m.stages[from] = waiting
		if !t.ordered {
			m.stages[from] = promised
		}
	} else if m == nil {
		return
	} else if _, in := m.stages[from]; !in {
		return
	}
	switch kind {
	case promise:
		m.stages[from] = promised
	case leave:
		delete(t.meetings, number)
		for _, r := range slices.Sorted(maps.Keys(m.stages)) {
			t.say(r, refuse, number, why)
		}
		return
	}
	for _, r := range m.order {
		if s, in := m.stages[r]; !in || s == invited {
			return
		} else if s == waiting {
			m.stages[r] = invited
			t.say(r, invite, number, nil)
			return
		}
	}
	if m.order != nil {
		delete(t.meetings, number)
		for _, r := range m.order {
			t.say(r, callNow, number, nil)
		}
	}
}

// together makes a call that waits for the members. It returns an error, and no member makes the call, if one of them
// gives up before all have promised: because b has ended, or the communicator has.
func (c *comm) together(b *backend.Bound, members []int, number uint64, call func() error) error {
	p, t := c.p, &c.turns
	if len(members) == 1 {
		return call()
	}
	if p.level < libmpi.Serialized && !libmpi.MayCall() {
		return libmpi.Error(libmpi.Thread)
	}
	order := slices.SortedFunc(slices.Values(members), func(a, b int) int { return cmp.Compare(c.world[a], c.world[b]) })
	t.mu.Lock()
	mine, told := t.come(number, order)
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.parts[number] == mine {
			delete(t.parts, number)
		}
	}()
	var why error
	for w := newWait(b); ; {
		c.hearTurns()
		t.mu.Lock()
		now := mine.stage
		if now == invited && p.turn.TryLock() {
			defer p.turn.Unlock()
			told = t.promise(mine)
		}
		t.mu.Unlock()
		switch {
		case now == calling:
			return call()
		case now == refused:
			return cmp.Or(why, c.usable(), error(backend.DecodeFault(mine.why)))
		case !told:
			return cmp.Or(why, c.usable(), error(backend.Faultf(backend.ErrBroken, "the MPI library cannot send a message to another member")))
		case p.failed.Load() != nil:
			return c.usable()
		case p.hasLeft(c.world[mine.decider]):
			return peerLeft(c.world[mine.decider])
		}
		p.engine.poll(1)
		p.hear()
		err := w.pause(c)
		if why != nil {
			continue
		}
		if why = cmp.Or(err, c.usable(), c.missing(order)); why != nil {
			w = newWait(nil)
			t.mu.Lock()
			if mine.stage < leaving {
				told = t.leave(mine, c.gaveUp(why).Encode(noticeSize))
			}
			t.mu.Unlock()
		}
	}
}

// gaveUp returns the error that the other members of a meeting get.
func (c *comm) gaveUp(why error) *backend.Fault {
	if why == errClosed {
		return peerLeft(c.world[c.rank])
	}
	f := asFault(why)
	return backend.Faultf(f.Sentinel, "rank %d gave up: %s", c.rank, f.Text)
}

// missing returns an error if a member has left the job.
func (c *comm) missing(members []int) error {
	for _, r := range members {
		if c.p.hasLeft(c.world[r]) {
			return peerLeft(c.world[r])
		}
	}
	return nil
}

func peerLeft(world int) *backend.Fault {
	return backend.PeerLeft("rank %d has closed its communicator and left the job", world)
}

// hearTurns receives the messages of meetings that have arrived. The caller keeps the communicator from being freed.
func (c *comm) hearTurns() {
	t := &c.turns
	if !t.mu.TryLock() {
		return // another goroutine does
	}
	defer t.mu.Unlock()
	var st libmpi.Status
	for arrived(c.ctl, c.p.folds.turn(), &st) {
		m := make([]byte, st.Bytes)
		if c.ctl.Recv(m, int(st.Source), c.p.folds.turn(), &st) != 0 {
			return
		}
		c.gate.Count(-1)
		t.hear(int(st.Source), m)
	}
}

// answerLeavers receives the messages of meetings on all communicators, also on closed ones: a member of a meeting is
// inside its communicator, which is not freed meanwhile.
func (p *process) answerLeavers() {
	w, e := p.world, &p.engine
	if w.size == 1 || p.failed.Load() != nil || !w.gate.Enter() {
		return
	}
	defer w.leave()
	e.mu.Lock()
	comms := e.comms
	e.mu.Unlock()
	for _, c := range comms {
		if c.gate.Enter() {
			c.hearTurns()
			c.leave()
		}
	}
	if !e.tending.TryLock() { // else no communicator is freed
		return
	}
	defer e.tending.Unlock()
	e.mu.Lock()
	comms = e.retired
	e.mu.Unlock()
	for _, c := range comms {
		c.hearTurns()
	}
}

// all returns the ranks of the communicator.
func (c *comm) all() []int {
	all := make([]int, c.size)
	for r := range all {
		all[r] = r
	}
	return all
}

// hasLeft reports whether a rank has left the job, and all that it had sent before has arrived.
func (p *process) hasLeft(world int) bool {
	p.departed.Lock()
	defer p.departed.Unlock()
	at, ok := p.departed.at[world]
	return ok && time.Since(at) > arrives
}
