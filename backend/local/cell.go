package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/word"
)

// cell is where a receive waits for the moment for which its goroutine spins, before it is posted. A sender delivers to it
// without the lock of the queues: the line of the cell goes from rank to rank, and not those of the lock, of the queue and
// of a record too.
//
//	state    the cell has      next, by
//	empty    nothing           waiting: the receiver, which has locked the queues
//	waiting  a receive         writing: a sender, the receiver, or whoever locks the queues
//	writing  an owner          full: a sender; empty: the others, and a sender if the receive does not take its message
//	full     a message         empty: the receiver
//
// The word has the number of the receive besides, by which a receiver knows its own. The other fields belong to the
// receiver, and while the state is writing to its owner. An empty cell keeps no buffer reachable.
//
// Invariant: while a receive waits in the cell, no other receive is posted, and no message that it takes has arrived or is
// in the ring. So the message that it gets overtakes none, and is due to no other receive.
type cell struct {
	word   word.Uint64 // the receive's number times cellStates, and the state
	env    match.Env   // the pattern of the receive, then the envelope of the message
	buf    []byte      // of the receive
	data   [10]byte    // a message that fits here: buf is in another cache line
	length uint16
	at     uint32 // how many entries of the ring have been delivered: if more are claimed, the message may overtake one
}

// cellMax is the longest message that goes through a cell. Whoever locks the queues meanwhile waits for the copy.
const cellMax = copyMax

// States of a cell.
const (
	cellEmpty = iota
	cellWaiting
	cellWriting
	cellFull
	cellStates
)

// give delivers a message to the receive in the cell, if there is one, it takes the message, and q, its rank's ring, is empty.
func (e *cell) give(q *ring, env match.Env, msg []byte) bool {
	w := e.word.Load()
	if len(msg) > cellMax || w%cellStates != cellWaiting || !e.word.CompareAndSwap(w, w-cellWaiting+cellWriting) {
		return false
	}
	number := w - cellWaiting
	if !e.env.Takes(env) || q != nil && e.at != uint32(q.tail.Load()) {
		e.empty(number)
		return false
	}
	e.env, e.length = env, uint16(len(msg))
	if len(msg) <= len(e.data) {
		copy(e.data[:], msg)
	} else {
		word.Copy(e.buf, msg)
	}
	e.word.Store(number + cellFull)
	return true
}

// empty is called by the owner.
func (e *cell) empty(number uint64) {
	e.buf = nil
	e.word.Store(number + cellEmpty)
}

// withdraw takes the receive out of the cell, unless it has got a message.
func (e *cell) withdraw() {
	for {
		switch w := e.word.Load(); w % cellStates {
		case cellWaiting:
			if e.word.CompareAndSwap(w, w-cellWaiting+cellWriting) {
				e.empty(w - cellWaiting)
				return
			}
		case cellWriting:
			word.Yield()
		default:
			return
		}
	}
}

// lock locks the queues. A receive in the cell goes there, and so do the messages in the ring.
func (r *rank) lock() {
	r.lockOnly()
	r.drain(nil)
}

// lockOnly locks the queues, and leaves the messages in the ring.
func (r *rank) lockOnly() {
	r.mu.Lock()
	r.cell.withdraw()
}

// linger has a receive wait in the cell until there is a message in the ring, and reports whether it got one in the cell. The
// cell is empty. c.me.mu is held, and linger unlocks it.
func (c *Comm) linger(env match.Env, buf []byte) (st backend.Status, err error, got bool) {
	e := &c.me.cell
	number := e.word.Load() - cellEmpty + cellStates
	e.env, e.buf = env, buf
	q := c.me.ring
	if q != nil {
		e.at = uint32(q.taken.Load())
	}
	e.word.Store(number + cellWaiting)
	c.me.mu.Unlock()
	for look := (patience{spins: lingers, next: between}); e.word.Load() == number+cellWaiting && look.more(); {
		if look.n%ringLook == 0 && q.some() { // its sender looked at the cell before the receive was in it
			break
		}
	}
	for w := e.word.Load(); w != number+cellFull; w = e.word.Load() {
		switch {
		case w == number+cellWriting:
			word.Yield()
		case w != number+cellWaiting:
			return st, nil, false
		case e.word.CompareAndSwap(w, number+cellWriting):
			e.empty(number)
			return st, nil, false
		}
	}
	n := int(e.length)
	if n <= len(e.data) {
		copy(buf, e.data[:n])
	}
	st, err = c.group.received(e.env, n, len(buf))
	e.empty(number)
	return st, err, true
}
