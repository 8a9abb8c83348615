//go:build cgo && linux

package mpi

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A call of the library that makes a communicator, or makes or frees a window, waits for all members. Nothing ends it: no
// deadline, and no notice that the communicator is broken. So the members first agree on the call by a two-phase commit, in
// messages on the communicator's ctl, and make it only when all of them are prepared.
//
// The coordinator is the member with the lowest world rank. Each member takes part in the transaction, also the coordinator:
//
//	member              event                                                to         message
//	-                   the member begins the call                           joined     join to the coordinator
//	-                   abort from the coordinator: a member has withdrawn   aborted
//	joined              prepare from the coordinator                         preparing
//	preparing           the member has its process's lock                    prepared   ready to the coordinator
//	joined, preparing   the member gives up                                  aborted    withdraw to the coordinator
//	prepared            the member gives up                                  prepared   withdraw to the coordinator
//	any but committed   abort from the coordinator                           aborted
//	prepared            commit from the coordinator                          committed
//
// A member gives up at its deadline, when the communicator breaks or is closed, and when a member has left the job.
//
// The coordinator keeps the states of the members that have joined:
//
//	all have joined                                 it has them prepare
//	all are prepared                                it commits
//	one withdraws, or cannot be told to prepare     it aborts on all members, also on those that have yet to join
//
// It decides once it has joined itself, and then forgets the transaction.
//
// At thread level serialized a call excludes all others of its process, which has one lock (process.calling). If rank 0 made
// one call and rank 1 another, both would wait without end. So the coordinator has the members prepare in the order of their
// world ranks, each once the one before is prepared. Two transactions cannot wait for each other's locks then. At level
// multiple all prepare at once.
//
// A member is never in two transactions with the same number, so no message is taken for one of another transaction. Messages
// between two members arrive in the order in which they were sent.
//
// Shared words: the transactions of a communicator, all of which mu guards. A goroutine that makes a call writes its own
// participant when it joins, is prepared or withdraws. Each goroutine that waits for a call receives messages for all calls of
// the communicator (handle), and so writes what any of them changes.
//
// Invariant: a member makes the call only if all members make it. The coordinator of a prepared member is in the transaction
// or has decided it, so only a prepared member waits for the decision. It waits until its deadline if the library cannot send
// it the decision, and so do the members that make the call.

// Kinds of messages of a transaction.
const (
	join byte = iota
	ready
	withdraw // then why
	prepare
	commit
	abort // then why
)

// state is a member's state in a transaction.
type state byte

const (
	joined state = iota
	preparing
	prepared
	committed
	aborted
)

// windowCalls is added to the numbers of transactions about windows, which each member counts. Those about communicators
// have the communicator's id.
const windowCalls = 1 << 32

// window returns the number of the next transaction about a window.
func (t *transactions) window() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.windows++
	return windowCalls + t.windows
}

// participant is this rank as a member of a transaction.
type participant struct {
	number      uint64 // of the transaction
	coordinator int
	state       state
	why         []byte // of aborted
}

// transaction is what the coordinator knows. One that it has forgotten comes back if a member is late, and stays.
type transaction struct {
	order     []int         // the members by world rank; nil: the coordinator has not joined
	states    map[int]state // of those that have joined
	withdrawn bool          // a member is
	why       []byte
}

// transactions are those of a communicator.
type transactions struct {
	mu          sync.Mutex // guards all, and is held while a message is received
	rank        int
	ordered     bool                        // the members prepare one by one
	send        func(to int, m []byte) bool // without waiting; false: the library cannot
	joins       map[uint64]*participant     // until this rank has joined and the coordinator has decided
	coordinates map[uint64]*transaction     // this rank is their coordinator
	windows     uint64                      // transactions about windows so far
}

func newTransactions(rank int, ordered bool, send func(to int, m []byte) bool) transactions {
	return transactions{rank: rank, ordered: ordered, send: send, joins: map[uint64]*participant{}, coordinates: map[uint64]*transaction{}}
}

var errUnsent = backend.Faultf(backend.ErrBroken, "the MPI library cannot send a message to another member")

// tell sends a member a message. It returns false if the library cannot.
func (t *transactions) tell(to int, kind byte, number uint64, why []byte) bool {
	if to == t.rank {
		t.handle(t.rank, kind, number, why)
		return true
	}
	return t.send(to, append(binary.LittleEndian.AppendUint64([]byte{kind}, number), why...))
}

// receive takes a message of a member.
func (t *transactions) receive(from int, m []byte) {
	t.handle(from, m[0], binary.LittleEndian.Uint64(m[1:]), m[9:])
}

// join begins this rank's part in a transaction.
func (t *transactions) join(number uint64, order []int) (p *participant, ok bool) {
	p = t.participant(number)
	p.number, p.coordinator = number, order[0]
	if p.coordinator == t.rank {
		t.coordinate(number).order = order
	}
	return p, t.tell(p.coordinator, join, number, nil)
}

func (t *transactions) ready(p *participant) bool {
	p.state = prepared
	return t.tell(p.coordinator, ready, p.number, nil)
}

func (t *transactions) withdraw(p *participant, why []byte) bool {
	if p.state < prepared {
		p.state, p.why = aborted, why
	}
	return t.tell(p.coordinator, withdraw, p.number, why)
}

// participant returns this rank as a member when it joins or when the decision comes. The first of the two makes the record,
// and the second takes it out.
func (t *transactions) participant(number uint64) *participant {
	p := t.joins[number]
	if p == nil {
		p = &participant{}
		t.joins[number] = p
	} else {
		delete(t.joins, number)
	}
	return p
}

// coordinate returns a transaction of which this rank is the coordinator.
func (t *transactions) coordinate(number uint64) *transaction {
	x := t.coordinates[number]
	if x == nil {
		x = &transaction{states: map[int]state{}}
		t.coordinates[number] = x
	}
	return x
}

// handle handles a message.
func (t *transactions) handle(from int, kind byte, number uint64, why []byte) {
	switch kind {
	case prepare:
		if p := t.joins[number]; p.state == joined {
			p.state = preparing
		}
		return
	case commit:
		t.participant(number).state = committed
		return
	case abort:
		p := t.participant(number)
		p.state, p.why = aborted, why
		return
	case join:
		t.coordinate(number).states[from] = joined
	}
	x := t.coordinates[number]
	if x == nil { // the message has crossed the decision
		return
	}
	switch kind {
	case ready:
		x.states[from] = prepared
	case withdraw:
		x.withdrawn, x.why = true, why
	}
	if x.order == nil {
		return
	}
	switch all := len(x.states) == len(x.order) && !x.withdrawn && t.prepare(number, x); {
	case x.withdrawn:
		t.decide(number, x, abort)
	case all:
		t.decide(number, x, commit)
	}
}

// prepare has the members prepare, or the next one. It returns true if all are prepared. A member that cannot be told to
// prepare is taken to have withdrawn.
func (t *transactions) prepare(number uint64, x *transaction) bool {
	all := true
	for _, r := range x.order {
		if x.states[r] == joined {
			x.states[r] = preparing
			if !t.tell(r, prepare, number, nil) {
				x.withdrawn, x.why = true, errUnsent.Encode(noticeSize)
				return false
			}
		}
		if x.states[r] == preparing {
			if t.ordered {
				return false
			}
			all = false
		}
	}
	return all
}

// decide tells the members how the transaction ends.
func (t *transactions) decide(number uint64, x *transaction, kind byte) {
	delete(t.coordinates, number)
	for _, r := range x.order {
		t.tell(r, kind, number, x.why)
	}
}

// together makes a call that waits for the members. It returns false and an error, and no member makes the call, if one
// of them gives up before all are prepared: because b has ended, or the communicator has.
//
// A prepared member that gives up does not know yet whether all make the call, and nothing ends a call in the library. So
// a goroutine goes on with both, calls late when it knows the end, and together returns true and b's error. Where only one
// thread may call the library, together waits for the end itself.
func (c *comm) together(b *backend.Bound, members []int, number uint64, call func() error, late func(made bool, err error)) (made bool, err error) {
	if !b.Limited() || c.p.lib.level < libmpi.Serialized {
		return c.transact(b, time.Now(), members, number, call)
	}
	begun := time.Now()
	ctx := b.Ctx
	if ctx == nil {
		ctx = context.Background()
	}
	if d, ok := b.Deadline(begun); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, d)
		defer cancel()
	}
	h := newHandover()
	defer context.AfterFunc(ctx, h.news.Unpark)()
	c.aside(func() {
		if made, err := c.transact(b, begun, members, number, call); !h.end(made, err) {
			late(made, err)
		}
	})
	if h.await(func() bool { return ctx.Err() != nil }, backend.Grace) {
		return h.made, h.err
	}
	return true, b.Err(begun)
}

// transact is together in one goroutine. If that begins late, when the call's time is up, it gives up at once. It does this
// until the transaction is decided:
//
//  1. It receives messages of transactions.
//  2. If the coordinator has asked this member to prepare, it takes its process's lock and says that it is prepared.
//  3. If the transaction is decided, or the decision cannot come any more, it makes the call or returns why it does not.
//  4. It pauses, and gives up if its own time is up, the communicator has ended, or a member has left the job. If the member
//     is prepared, it still waits for the decision.
func (c *comm) transact(b *backend.Bound, begun time.Time, members []int, number uint64, call func() error) (made bool, err error) {
	p, t := c.p, &c.transactions
	if len(members) == 1 {
		return true, call()
	}
	if p.lib.level < libmpi.Serialized && !libmpi.MayCall() {
		return false, libmpi.Error(libmpi.Thread)
	}
	order := slices.SortedFunc(slices.Values(members), func(a, b int) int { return cmp.Compare(c.world[a], c.world[b]) })
	t.mu.Lock()
	mine, told := t.join(number, order)
	w, why := newWait(b), b.Err(begun)
	if why != nil {
		w, told = newWait(nil), t.withdraw(mine, c.gaveUp(why).Encode(noticeSize))
	}
	t.mu.Unlock()
	for {
		c.receiveTransactions()
		t.mu.Lock()
		if mine.state == preparing && (!t.ordered || p.calling.TryLock()) {
			if t.ordered {
				defer p.calling.Unlock()
			}
			told = t.ready(mine)
		}
		now, text := mine.state, mine.why
		t.mu.Unlock()
		switch {
		case now == committed:
			return true, call()
		case now == aborted:
			return false, cmp.Or(why, c.usable(), error(backend.DecodeFault(text)))
		case !told:
			return false, cmp.Or(why, c.usable(), error(errUnsent))
		case p.failed.Load() != nil:
			return false, c.usable()
		case p.departed.has(c.world[mine.coordinator]):
			return false, peerLeft(c.world[mine.coordinator])
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
			told = t.withdraw(mine, c.gaveUp(why).Encode(noticeSize))
			t.mu.Unlock()
		}
	}
}

// gaveUp returns the error that the other members of a transaction get.
func (c *comm) gaveUp(why error) *backend.Fault {
	if why == backend.CommClosed {
		return backend.PeerLeft("rank %d has closed this communicator", c.rank)
	}
	f := *asFault(why)
	f.Text = fmt.Sprintf("rank %d gave up: %s", c.rank, f.Text)
	return &f
}

// missing returns an error if a member has left the job.
func (c *comm) missing(members []int) error {
	for _, r := range members {
		if c.p.departed.has(c.world[r]) {
			return peerLeft(c.world[r])
		}
	}
	return nil
}

func peerLeft(world int) *backend.Fault {
	return backend.PeerLeft("rank %d has closed its communicator and left the job", world)
}

// receiveTransactions receives the messages of transactions that have arrived. The caller keeps the communicator from being freed.
func (c *comm) receiveTransactions() {
	t := &c.transactions
	if !t.mu.TryLock() {
		return // another goroutine does
	}
	defer t.mu.Unlock()
	for {
		m, from, ok := c.receiveControl(c.p.tags.commit())
		if !ok {
			return
		}
		t.receive(from, m)
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
