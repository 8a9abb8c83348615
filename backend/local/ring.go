package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/word"
)

// ring is where senders leave short messages for a rank, so that they need not lock its queues. A goroutine that locks the
// queues delivers them, and so does one that waits. Ranks that share processors have no rings.
//
//	tail    senders: how many entries they have claimed
//	seq     of an entry, the sender that has claimed it: its number plus 1, when the entry is complete
//	taken   a goroutine that has locked the queues and delivered messages: how many entries are free again
//	seen    a sender that finds no room: what it has read in taken
//	asleep  a goroutine of the rank: plus 1 before it sleeps, minus 1 afterwards
//
// Invariant: messages are delivered in the order of their entries, and before any that their senders then take to the queues
// themselves. No message stays in the ring while nobody looks at it: a sender claims an entry, and then looks whether the
// rank may be inattentive (unattended). The rank says so before it looks for claimed entries for the last time.
type ring struct {
	tail   word.Uint64
	seen   word.Uint64
	asleep word.Int32
	_      [44]byte
	taken  word.Uint64
	_      [56]byte
	all    [ringEntries]entry
}

const ringEntries = 64

// entry is a cache line. Its sender owns it from the claim until seq says that it is complete.
type entry struct {
	_      [0]word.Uint64 // aligns seq where pointers have 32 bits, too
	seq    uint64
	from   *Comm // nil: no message
	tag    int32
	elems  backend.Elems
	length uint16
	data   [40]byte
}

// leave leaves a message for rank dest in the ring, if there is room, and reports whether it did.
func (q *ring) leave(from *Comm, msg []byte, dest, tag int, elems backend.Elems) bool {
	end := &from.group.ends[dest]
	if len(msg) > len(entry{}.data) || q.unattended(end) || from.unusable() != nil || end.gone.Load() {
		return false
	}
	n, ok := q.claim()
	if !ok {
		return false
	}
	e, left := &q.all[n%ringEntries], !q.unattended(end)
	if word.Writing(e); left {
		e.from, e.tag, e.elems, e.length = from, int32(tag), elems, uint16(len(msg))
		word.Copy(e.data[:], msg)
	} else {
		e.from = nil
	}
	word.ReleaseUint64(&e.seq, n+1)
	return left
}

// unattended reports whether the rank may not look at its ring although it expects a message on its end of a communicator:
// it sleeps, or a Notify is to tell it.
func (q *ring) unattended(end *Comm) bool { return end.notifies.Load() || q.asleep.Load() > 0 }

// claim returns the number of an entry that belongs to the caller, if there is room.
func (q *ring) claim() (n uint64, ok bool) {
	for {
		n = q.tail.Load()
		if n-q.seen.Load() >= ringEntries {
			taken := q.taken.Load()
			if q.seen.Store(taken); n-taken >= ringEntries {
				return 0, false
			}
		}
		if q.tail.CompareAndSwap(n, n+1) {
			return n, true
		}
	}
}

// entry returns entry n, or nil if it is not complete.
func (q *ring) entry(n uint64) *entry {
	if e := &q.all[n%ringEntries]; word.LoadUint64(&e.seq) == n+1 {
		return e
	}
	return nil
}

// some reports whether there is something to deliver.
func (q *ring) some() bool { return q != nil && q.entry(q.taken.Load()) != nil }

// drain delivers all messages in the ring, and waits until entries that are claimed are complete. If until is not nil, it
// does not wait, and stops when the receive until has got its message. r.mu is held.
func (r *rank) drain(until *op) {
	q := r.ring
	if q == nil {
		return
	}
	began := q.taken.Load()
	n, last := began, until != nil
	for {
		e := q.entry(n)
		if e == nil {
			if last || q.tail.Load() == n {
				break
			}
			word.Yield()
			continue
		}
		word.Reading(e)
		n++
		if e.from != nil && e.deliver(r) == until && last {
			break
		}
	}
	if n != began {
		q.taken.Store(n)
	}
}

// deliver moves the message to the first posted receive that takes it, which it returns, or to the queue of messages, if
// its communicator has not ended.
func (e *entry) deliver(r *rank) *op {
	g := e.from.group
	env := match.Env{Ctx: g.key.id, Source: int32(e.from.me.id), Tag: e.tag, Elems: e.elems}
	msg := e.data[:e.length]
	if n := r.posted.TakePosted(env); n != nil {
		o := owner(n)
		o.long = false
		st, err := o.c.group.received(env, len(msg), len(o.buf))
		word.Copy(o.buf, msg)
		o.settle(st, err)
		return o
	}
	if g.end.Load() == nil && !g.ends[g.RankOf(r.id)].gone.Load() { // else the queues may have been cleared
		m := r.copyOf(msg)
		m.node.Env, m.at = env, r
		r.arrived.Push(&m.node)
	}
	return nil
}

// receive delivers the messages in the ring if there are some.
func (r *rank) receive() {
	if r.ring.some() {
		r.lock()
		r.mu.Unlock()
	}
}
