package flight

import (
	"runtime"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/release"
)

// Slots is how many operations a ring holds.
const Slots = 1024

// record is one operation, a cache line long. Invariant: first and last are equal while the record is not
// being written; a writer begins with first and ends with last, a reader the other way round.
type record struct {
	first uint64 // the operation's ticket
	what  uint64 // kind, form, reduction; the communicator's id in the upper half
	count uint64
	typed uint64 // the element type's id; the tag in the upper half
	place uint64 // the peer or root; the sequence number in the upper half
	begun uint64 // when, 0: not known
	state uint64 // the State; above it, when it came about, or 0
	last  uint64
}

// State is how far an operation is.
type State uint8

// The states. Failed and what is above it is a failure, with the error's code added.
const (
	Open    State = iota // called, or started if it is a nonblocking one
	Waiting              // started before, and waited for
	Done
	Failed
)

// Ticket names an operation in a ring, until it is overwritten. 0 names none.
type Ticket uint64

// Ring has the last operations of one rank. Any number of goroutines may write to it.
type Ring struct {
	next atomic.Uint64
	_    [56]byte // what follows is only read
	recs *[Slots]record

	skip  uint64 // of BeginSparse
	tally *tally // nil: operations are not counted
}

// Of 2^64 operations, this many do not get the time.
const (
	none = 0
	most = 3 << 62
	all  = 1<<64 - 1
)

// timed reports whether an operation is one of those that get the time. These are spread evenly, and not in the
// rhythm of a program's loops (Knuth, The Art of Computer Programming, 6.4, theorem S).
func timed(t, skip uint64) bool {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return t*golden >= skip
}

// Sparse has BeginSparse take the time of a quarter of the operations only, for a rank whose operations
// call Stamp before they wait, or that calls StampAll often. It is called before the first operation.
// If operations are counted, all get the time.
func (r *Ring) Sparse() { r.skip = most }

// openTries is how many records of operations under way a new one passes over.
const openTries = 16

// Begin notes that an operation begins now.
func (r *Ring) Begin(what, count, typed, place uint64) Ticket {
	return r.put(what, count, typed, place, none)
}

// BeginSparse is Begin for the operations of which there are most: in a sparse ring few get the
// time here, and the others when they begin to wait.
func (r *Ring) BeginSparse(what, count, typed, place uint64) Ticket {
	return r.put(what, count, typed, place, r.skip)
}

// BeginUntimed is Begin without the time, for an operation that EndTimed ends, or that is waited
// for with Wait.
func (r *Ring) BeginUntimed(what, count, typed, place uint64) Ticket {
	return r.put(what, count, typed, place, all)
}

// put writes a record, with the time unless it is one of those to skip.
func (r *Ring) put(what, count, typed, place, skip uint64) Ticket {
	t := r.next.Add(1)
	p := &r.recs[t%Slots]
	if p.pending() {
		t, p = r.pass(t)
	}
	release.Uint64(&p.first, t)
	release.Uint64(&p.what, what)
	release.Uint64(&p.count, count)
	release.Uint64(&p.typed, typed)
	release.Uint64(&p.place, place)
	var begun uint64
	if r.tally != nil {
		begun = now()
		release.Uint64(&r.tally.lengths[t%Slots], count)
	} else if timed(t, skip) {
		begun = now()
	}
	release.Uint64(&p.begun, begun)
	release.Uint64(&p.state, 0)
	release.Uint64(&p.last, t)
	runtime.KeepAlive(r) // and with it the memory of the ring
	return Ticket(t)
}

// pending reports whether the operation of a record is under way.
func (p *record) pending() bool {
	last := atomic.LoadUint64(&p.last)
	return State(atomic.LoadUint64(&p.state)) < Done && last != 0 && last == atomic.LoadUint64(&p.first)
}

// pass returns the next record whose operation has ended. If there are many operations for which no goroutine
// ever waits, it returns the last record that it tried.
func (r *Ring) pass(t uint64) (uint64, *record) {
	p := &r.recs[t%Slots]
	for range openTries {
		t = r.next.Add(1)
		if p = &r.recs[t%Slots]; !p.pending() {
			break
		}
	}
	return t, p
}

// End notes that an operation has been successful.
func (r *Ring) End(t Ticket) {
	if r.tally != nil {
		r.finish(t, Done)
		return
	}
	p := &r.recs[t%Slots]
	if atomic.LoadUint64(&p.first) == uint64(t) {
		release.Uint64(&p.state, uint64(Done))
	}
	runtime.KeepAlive(r)
}

// EndTimed is End of an operation that began without the time. In a sparse ring few get one.
func (r *Ring) EndTimed(t Ticket) {
	if r.tally != nil {
		r.finish(t, Done)
		return
	}
	p := &r.recs[t%Slots]
	if atomic.LoadUint64(&p.first) == uint64(t) {
		if timed(uint64(t), r.skip) && atomic.LoadUint64(&p.begun) == 0 {
			release.Uint64(&p.begun, now())
		}
		release.Uint64(&p.state, uint64(Done))
	}
	runtime.KeepAlive(r)
}

// Fail notes that an operation has ended now with an error of that code.
// One of a sparse ring that has no time yet gets that of its end: it has waited for less than Stamp or StampAll take to
// come.
func (r *Ring) Fail(t Ticket, code uint8) {
	switch {
	case t == 0:
	case r.tally != nil:
		r.finish(t, Failed+State(code))
	default:
		if r.skip != none {
			r.stamp(uint64(t), now())
		}
		r.change(t, Failed+State(code), now())
	}
}

// Completed notes that an operation that was started before has ended, with an error of that code, 0 for none.
func (r *Ring) Completed(t Ticket, code uint8) {
	switch {
	case code != 0:
		r.change(t, Failed+State(code), now())
	case r.tally != nil:
		r.change(t, Done, now())
	default:
		r.End(t)
	}
}

// Wait notes that an operation that was started before is waited for from now on, which it returns.
func (r *Ring) Wait(t Ticket) (since uint64) {
	since = now()
	r.change(t, Waiting, since)
	return since
}

func (r *Ring) change(t Ticket, s State, at uint64) {
	if t == 0 {
		return
	}
	p := &r.recs[t%Slots]
	if atomic.LoadUint64(&p.first) == uint64(t) {
		release.Uint64(&p.state, at<<8|uint64(s))
	}
	runtime.KeepAlive(r)
}

// recent is how many of the last operations Stamp looks at: those that goroutines can have begun while
// one of them looked for what it needs.
const recent = 16

// Stamp gives those of the last operations the time of now that somebody waits in and that have none.
func (r *Ring) Stamp() { r.stampLast(recent) }

// StampAll is Stamp for all that the ring has.
func (r *Ring) StampAll() { r.stampLast(Slots) }

func (r *Ring) stampLast(n uint64) {
	at, t := now(), r.next.Load()
	for range min(t, n) {
		r.stamp(t, at)
		t--
	}
}

// stamp gives an operation the time that has none, if it is one that somebody waits in.
func (r *Ring) stamp(t, at uint64) {
	p := &r.recs[t%Slots]
	if atomic.LoadUint64(&p.last) == t && atomic.LoadUint64(&p.begun) == 0 && atomic.LoadUint64(&p.state) == uint64(Open) &&
		backend.Form(atomic.LoadUint64(&p.what)>>8) == backend.Blocking && atomic.LoadUint64(&p.first) == t {
		release.Uint64(&p.begun, at)
	}
	runtime.KeepAlive(r)
}

// read copies a record; it returns false if the record is empty or was written meanwhile.
func (p *record) read() (c record, ok bool) {
	c.last = atomic.LoadUint64(&p.last)
	c.state = atomic.LoadUint64(&p.state)
	c.begun = atomic.LoadUint64(&p.begun)
	c.place = atomic.LoadUint64(&p.place)
	c.typed = atomic.LoadUint64(&p.typed)
	c.count = atomic.LoadUint64(&p.count)
	c.what = atomic.LoadUint64(&p.what)
	c.first = atomic.LoadUint64(&p.first)
	return c, c.first == c.last && c.last != 0
}

// What packs the kind of an operation, its form, its reduction and its communicator.
func What(k Kind, form, op uint8, comm uint32) uint64 {
	return uint64(k) | uint64(form)<<8 | uint64(op)<<16 | uint64(comm)<<32
}

// Pair packs two numbers: the type and the tag, or the peer and the sequence number.
func Pair(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }
