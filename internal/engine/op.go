package engine

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/memlink"
)

// op is a send or receive in progress.
type op struct {
	state    opState
	node     match.Node // of a receive; its Env stays the pattern
	req      *backend.Request
	own      backend.Request // for blocking calls
	comm     *comm
	buf      []byte
	parts    backend.Parts // nil: buf has the message
	whole    int           // bytes at the start of buf that were received and that parts has not unpacked yet
	frame    *out          // the queued frame that has its bytes
	self     *msg          // a long message to this rank that no receive has matched
	pair     *op           // in opMoving, the other end
	cause    error         // with which a canceled send ends if it had not matched
	transfer memlink.Transfer
	env      match.Env // what a receive in progress receives
	peer     int       // world rank
	tag      int32
	token    uint64 // of its slot
	theirs   uint64 // the peer's token for it
	n        int    // bytes to move
	at       int    // bytes moved
	size     int    // bytes the sender has
}

// opState says what an operation waits for, and so in which place it is. An operation that has begun and not ended is
// in exactly one place. Everything that can end it finds it there: the next message, a frame of the peer, the end of a
// rank or of the communicator.
type opState uint8

const (
	opIdle        opState = iota // not begun, or ended
	opPosted                     // a receive that waits for its message
	opArriving                   // a receive whose short message is being read
	opQueued                     // an eager send whose last byte is not written
	opRequested                  // a send that waits for its CTS, or for a receive of this rank
	opWithdrawing                // a send that waits for its CTS, or for the answer to Withdraw
	opStreaming                  // a send whose CTS has come
	opReceiving                  // a receive that has sent its CTS, and whose data come
	opMoving                     // a send to, or a receive from, this rank that is being copied
	opExposed                    // a send by transfer
	opCopying                    // a receive by transfer
	opStopped                    // a receive by transfer that its owner has abandoned, but to which the peer may still copy
)

type opPlace uint8

const (
	nowhere   opPlace = iota
	inPosted          // the queue of posted receives
	inArrival         // the frame that is being read from its peer
	inSlot            // a slot, with a token by which its peer refers to it
)

var places = [...]opPlace{
	opPosted: inPosted, opArriving: inArrival,
	opQueued: inSlot, opRequested: inSlot, opWithdrawing: inSlot, opStreaming: inSlot, opReceiving: inSlot,
	opMoving: inSlot, opExposed: inSlot, opCopying: inSlot, opStopped: inSlot,
}

// begin returns the operation of a request, or of a blocking call if r is nil. The lock is held. The caller puts the
// operation into its place, or finishes it, before it releases the lock.
func (c *comm) begin(r *backend.Request) *op {
	e := c.e
	o := e.storage.ops.get()
	o.comm, o.req = c, r
	if r == nil {
		o.req = &o.own
		o.own.Begin()
	} else {
		o.parts, o.whole, r.Impl = r.Parts, 0, o
	}
	e.active++
	return o
}

// put changes the state of an operation, and moves the operation to the place of that state.
func (e *Engine) put(o *op, s opState) {
	from, to := places[o.state], places[s]
	o.state = s
	if s == opMoving || s == opCopying { // no frame comes that would wake it
		e.wakeLeader()
	}
	if from == to {
		return
	}
	switch from {
	case inPosted:
		e.posted.Remove(&o.node)
	case inSlot:
		e.leaveSlot(o)
		fallthrough // a frame of it may be arriving, too
	case inArrival:
		if p := e.peers[o.peer]; p != nil && p.op == o {
			p.op, p.in.Dst = nil, nil
		}
	}
	switch to {
	case inPosted:
		e.posted.Push(&o.node)
	case inSlot:
		e.enterSlot(o)
	case inArrival:
		e.peers[o.peer].op = o
	}
}

// received completes a receive whose bytes are in place.
func (e *Engine) received(o *op, env match.Env, size, copied int) {
	var err error
	if size > copied {
		err = &backend.TooLong{Bytes: size, Room: len(o.buf)}
	}
	e.finish(o, backend.Status{Source: o.comm.RankOf(int(env.Source)), Tag: int(env.Tag), Bytes: size, Elems: env.Elems}, err)
}

// finish completes an operation. The lock is held. Notify is called when it is released.
func (e *Engine) finish(o *op, st backend.Status, err error) {
	r := o.req
	stopped := o.state == opStopped
	e.put(o, opIdle)
	e.active--
	o.buf, o.frame, o.self, o.pair = nil, nil, nil, nil
	if stopped { // no one waits for it
		e.putOp(o)
		return
	}
	if r.Notify != nil {
		e.mu.notify(r)
	}
	if r != &o.own { // blocking calls give their op back themselves
		r.Impl = nil
		e.putOp(o)
	}
	r.Finish(st, err) // from here on r and o are their owner's
	e.wakeReady()
}

func (e *Engine) putOp(o *op) {
	o.req, o.comm, o.buf, o.parts = nil, nil, nil, nil
	e.storage.ops.put(o)
}

type slot struct {
	op  *op
	gen uint32
}

// enterSlot gives o a token.
func (e *Engine) enterSlot(o *op) {
	if len(e.spares) == 0 {
		e.spares = append(e.spares, uint32(len(e.slots)))
		e.slots = append(e.slots, slot{})
	}
	i := e.spares[len(e.spares)-1]
	e.spares = e.spares[:len(e.spares)-1]
	s := &e.slots[i]
	s.op = o
	if s.gen++; s.gen == 0 {
		s.gen = 1
	}
	o.token = uint64(s.gen)<<32 | uint64(i)
}

// leaveSlot ends o's token.
func (e *Engine) leaveSlot(o *op) {
	i := uint32(o.token)
	e.slots[i].op, o.token = nil, 0
	e.spares = append(e.spares, i)
}

// lookup returns the operation of a token from a peer, nil if it has ended.
func (e *Engine) lookup(token uint64, peer int) *op {
	i := uint32(token)
	if uint64(i) >= uint64(len(e.slots)) {
		return nil
	}
	s := &e.slots[i]
	if s.op == nil || uint64(s.gen) != token>>32 || s.op.peer != peer {
		return nil
	}
	return s.op
}
