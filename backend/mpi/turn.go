//go:build cgo && linux

package mpi

import (
	"cmp"
	"encoding/binary"
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
//	part                event                                        to        message
//	-                   the member comes                             waiting   come to the decider
//	-                   refuse from the decider: a member has left   refused
//	waiting             invite from the decider                      invited
//	invited             the member has its process's turn            promised  promise to the decider
//	waiting, invited    the member gives up                          refused   leave to the decider
//	promised            the member gives up                          promised  leave to the decider
//	any but calling     refuse from the decider                      refused
//	promised            call from the decider                        calling
//
// A member gives up at its deadline, when the communicator breaks or is closed, and when a member has left the job.
//
// The decider has the stages of the members that have come. Once all have come it invites them, and once all have promised
// it tells them to call. If one leaves, it refuses all members, also those that have yet to come, unless it has not come
// itself: then it does so when it comes. After its answer it forgets the meeting.
//
// At thread level serialized the call excludes all others of its process, which has one turn. If rank 0 made one call and
// rank 1 another, both would wait without end. So the decider invites the members in the order of their world ranks, each
// once the one before has promised. Two meetings cannot wait for each other's turns then. Otherwise it invites all at once.
//
// A member is never in two meetings with the same number, so no message is taken for one of another meeting. Messages
// between two members arrive in the order they were sent.
//
// Invariant: a member calls only if all members call. The decider of a member that has promised is in the meeting or has
// answered, so only such a member waits for the answer.

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
	calling
	refused
)

// windowMeetings is added to the numbers of meetings about windows, which each member counts. Those about communicators
// have the communicator's id.
const windowMeetings = 1 << 32

// part is this rank's part in a meeting.
type part struct {
	meeting uint64
	decider int
	stage   stage
	why     []byte // of refused
}

// meeting is what the decider knows. One that it has forgotten comes back if a member is late, and stays.
type meeting struct {
	order  []int         // the members by world rank; nil: the decider has not come
	stages map[int]stage // of those that have come
	left   bool          // a member has
	why    []byte
}

// turns are a communicator's meetings.
type turns struct {
	mu       sync.Mutex // guards all, and is held while a message is received
	rank     int
	ordered  bool                        // the members are invited one by one
	send     func(to int, m []byte) bool // without waiting; false: the library cannot
	parts    map[uint64]*part            // until this rank has come and the decider has answered
	meetings map[uint64]*meeting         // in which this rank decides
	windows  uint64                      // meetings about windows so far
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
	p = t.partIn(number)
	p.meeting, p.decider = number, order[0]
	if p.decider == t.rank {
		t.decides(number).order = order
	}
	return p, t.say(p.decider, come, number, nil)
}

func (t *turns) promise(p *part) bool {
	p.stage = promised
	return t.say(p.decider, promise, p.meeting, nil)
}

func (t *turns) leave(p *part, why []byte) bool {
	if p.stage < promised {
		p.stage, p.why = refused, why
	}
	return t.say(p.decider, leave, p.meeting, why)
}

// partIn returns this rank's part when it comes or when the answer does. The first of the two makes it, and the second
// takes it out.
func (t *turns) partIn(number uint64) *part {
	p := t.parts[number]
	if p == nil {
		p = &part{}
		t.parts[number] = p
	} else {
		delete(t.parts, number)
	}
	return p
}

// decides returns a meeting in which this rank decides.
func (t *turns) decides(number uint64) *meeting {
	m := t.meetings[number]
	if m == nil {
		m = &meeting{stages: map[int]stage{}}
		t.meetings[number] = m
	}
	return m
}

// take handles a message.
func (t *turns) take(from int, kind byte, number uint64, why []byte) {
	switch kind {
	case invite:
		if p := t.parts[number]; p.stage == waiting {
			p.stage = invited
		}
		return
	case callNow:
		t.partIn(number).stage = calling
		return
	case refuse:
		p := t.partIn(number)
		p.stage, p.why = refused, why
		return
	case come:
		t.decides(number).stages[from] = waiting
	}
	m := t.meetings[number]
	if m == nil { // the message has crossed the answer
		return
	}
	switch kind {
	case promise:
		m.stages[from] = promised
	case leave:
		m.left, m.why = true, why
	}
	switch {
	case m.order == nil:
	case m.left:
		t.answer(number, m, refuse)
	case len(m.stages) == len(m.order) && t.invite(number, m):
		t.answer(number, m, callNow)
	}
}

// invite invites the members, or the next one. It returns true if all have promised.
func (t *turns) invite(number uint64, m *meeting) bool {
	all := true
	for _, r := range m.order {
		if m.stages[r] == waiting {
			m.stages[r] = invited
			t.say(r, invite, number, nil)
		}
		if m.stages[r] == invited {
			if t.ordered {
				return false
			}
			all = false
		}
	}
	return all
}

// answer tells the members how the meeting ends.
func (t *turns) answer(number uint64, m *meeting, kind byte) {
	delete(t.meetings, number)
	for _, r := range m.order {
		t.say(r, kind, number, m.why)
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
	if number == windowMeetings {
		t.windows++
		number += t.windows
	}
	mine, told := t.come(number, order)
	t.mu.Unlock()
	var why error
	for w := newWait(b); ; {
		c.hearTurns()
		t.mu.Lock()
		if mine.stage == invited && (!t.ordered || p.turn.TryLock()) {
			if t.ordered {
				defer p.turn.Unlock()
			}
			told = t.promise(mine)
		}
		now, text := mine.stage, mine.why
		t.mu.Unlock()
		switch {
		case now == calling:
			return call()
		case now == refused:
			return cmp.Or(why, c.usable(), error(backend.DecodeFault(text)))
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
			told = t.leave(mine, c.gaveUp(why).Encode(noticeSize))
			t.mu.Unlock()
		}
	}
}

// gaveUp returns the error that the other members of a meeting get.
func (c *comm) gaveUp(why error) *backend.Fault {
	if why == errClosed {
		return backend.PeerLeft("rank %d has closed this communicator", c.rank)
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
