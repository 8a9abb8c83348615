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

// later is added to the ticket of an operation that does not block: a nonblocking one, or a start of a persistent one.
const later Ticket = 1 << 63

// Ring has the last operations of one rank. Any number of goroutines may write to it.
type Ring struct {
	next atomic.Uint64
	_    [56]byte // what follows is only read
	recs *[Slots]record

	skip  uint64 // of most operations that block
	tally *tally // nil: operations are not counted
}

// Of 2^64 operations, this many do not get the time when they begin.
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

// Sparse has Begin take the time of a quarter of the operations only, for a rank whose operations call Stamp before they
// wait, or that calls StampAll often. It is called before the first operation. If operations are counted, all get the
// time.
func (r *Ring) Sparse() { r.skip = most }

// shortSend is the length in bytes up to which a send is recorded before the clock is read. A longer send takes several
// times as long as reading the clock.
const shortSend = 1024

// openTries is how many records of operations under way a new one passes over.
const openTries = 16

// Begin notes that an operation begins now. Reading the clock costs more than everything else in the recorder. So the
// recorder reads it where this delays no other rank, unless it counts the operations:
//
//   - in Wait, of an operation that does not block;
//   - in End, of a short send: the message is then on its way;
//   - here, of all others: a receive or a collective waits anyway. In a sparse ring few of these get the time here,
//     and the others when they begin to wait.
func (r *Ring) Begin(what, count, typed, place uint64) Ticket {
	t := r.next.Add(1)
	p := &r.recs[t%Slots]
	if p.pending() {
		t, p = r.pass(t)
	}
	skip, kind, form := r.skip, Kind(what), backend.Form(what>>8)
	switch {
	case form == backend.Nonblocking || what&Starts != 0:
		t |= uint64(later)
		skip = all
	case kind == Send && count <= shortSend:
		skip = all
	case kind >= RecvAppend && kind <= Region || form == backend.Persistent:
		skip = none // it is rare
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

// End notes that an operation has ended, with an error or nil.
func (r *Ring) End(t Ticket, err error) {
	if err != nil || r.tally != nil {
		r.ended(t, err)
		return
	}
	p := &r.recs[t%Slots]
	if atomic.LoadUint64(&p.first) == uint64(t) {
		if t < later && timed(uint64(t), r.skip) && atomic.LoadUint64(&p.begun) == 0 {
			release.Uint64(&p.begun, now())
		}
		release.Uint64(&p.state, uint64(Done))
	}
	runtime.KeepAlive(r)
}

// ended is End with the time. One of a sparse ring that fails and has no time yet gets that of its end: it has waited for
// less than Stamp or StampAll take to come.
func (r *Ring) ended(t Ticket, err error) {
	s, at := Done, now()
	if err != nil {
		s = Failed + State(backend.Code(err))
	}
	if r.tally != nil && 0 < t && t < later {
		r.finish(t, s, at)
		return
	}
	if s != Done && r.skip != none {
		r.stamp(uint64(t), at)
	}
	r.change(t, s, at)
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

// Stamp gives those of the last operations the time of now that block and have none.
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

// stamp gives an operation the time that has none, if it blocks.
func (r *Ring) stamp(t, at uint64) {
	p := &r.recs[t%Slots]
	if t < uint64(later) && atomic.LoadUint64(&p.last) == t && atomic.LoadUint64(&p.begun) == 0 &&
		atomic.LoadUint64(&p.state) == uint64(Open) && atomic.LoadUint64(&p.first) == t {
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
