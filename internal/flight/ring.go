package flight

import (
	"runtime"

	"github.com/cohort-hpc/cohort/backend"
)

// record is one operation, a cache line long. The goroutine that changes first from last to its ticket (claim) writes the
// record, and ends with last. A reader begins with last and ends with first. Later only begun and state change.
//
// Invariant: one goroutine at a time writes a record, and a reader that finds first and last equal has what one goroutine
// has written. Only the time and the state may be another operation's: if a record is claimed whose operation is under way
// (openTries), a goroutine may store these late.
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
	given uint64   // a ticket given lately: goroutines that give tickets at once store theirs in any order
	_     [56]byte // what follows is only read
	recs  *[Slots]record

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
	skip, kind, form := r.skip, Kind(what), backend.Form(what>>8)
	mark := Ticket(0)
	switch {
	case form == backend.Nonblocking || what&Starts != 0:
		mark, skip = later, all
	case kind == Send && count <= shortSend:
		skip = all
	case kind >= RecvAppend && kind <= Region || form == backend.Persistent:
		skip = none // it is rare
	}
	t := load(&r.given) + 1
	p := &r.recs[t%Slots]
	if !p.claim(t, mark, false) {
		t, p = r.pass(t, mark)
	}
	release(&r.given, t)
	t |= uint64(mark)
	release(&p.what, what)
	release(&p.count, count)
	release(&p.typed, typed)
	release(&p.place, place)
	var begun uint64
	if r.tally != nil {
		begun = now()
		release(&r.tally.lengths[t%Slots], count)
	} else if timed(t, skip) {
		begun = now()
	}
	release(&p.begun, begun)
	release(&p.state, 0)
	release(&p.last, t)
	runtime.KeepAlive(r) // and with it the memory of the ring
	return Ticket(t)
}

// claim makes the caller the writer of a record, for the operation of a ticket. It returns false if this or a later ticket
// has been given, if another goroutine writes the record, or, unless open, if the operation of the record is under way.
func (p *record) claim(t uint64, mark Ticket, open bool) bool {
	was := load(&p.last)
	return was&^uint64(later) < t && (State(load(&p.state)) >= Done || was == 0 || open) &&
		swap(&p.first, was, t|uint64(mark))
}

// pass claims the next record that it can. If there are many operations for which no goroutine ever waits, it takes the
// record of one.
func (r *Ring) pass(t uint64, mark Ticket) (uint64, *record) {
	for tries := 1; ; tries++ {
		t = r.newest(t) + 1
		if p := &r.recs[t%Slots]; p.claim(t, mark, tries >= openTries) {
			return t, p
		}
	}
}

// newest returns the last ticket that goroutines have given after t, t if there is none.
func (r *Ring) newest(t uint64) uint64 {
	for {
		next := load(&r.recs[(t+1)%Slots].last) &^ uint64(later)
		if next <= t {
			return t
		}
		t = next
	}
}

// End notes that an operation has ended, with an error or nil.
func (r *Ring) End(t Ticket, err error) {
	if err != nil || r.tally != nil {
		r.ended(t, err)
		return
	}
	p := &r.recs[t%Slots]
	if load(&p.first) == uint64(t) {
		if t < later && timed(uint64(t), r.skip) && load(&p.begun) == 0 {
			release(&p.begun, now())
		}
		release(&p.state, uint64(Done))
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
	if load(&p.first) == uint64(t) {
		release(&p.state, at<<8|uint64(s))
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
	at, t := now(), r.newest(load(&r.given))
	for range min(t, n) {
		r.stamp(t, at)
		t--
	}
}

// stamp gives an operation the time that has none, if it blocks.
func (r *Ring) stamp(t, at uint64) {
	p := &r.recs[t%Slots]
	if t < uint64(later) && load(&p.last) == t && load(&p.begun) == 0 &&
		load(&p.state) == uint64(Open) && load(&p.first) == t {
		release(&p.begun, at)
	}
	runtime.KeepAlive(r)
}

// read copies a record; it returns false if the record is empty or was written meanwhile.
func (p *record) read() (c record, ok bool) {
	c.last = load(&p.last)
	c.state = load(&p.state)
	c.begun = load(&p.begun)
	c.place = load(&p.place)
	c.typed = load(&p.typed)
	c.count = load(&p.count)
	c.what = load(&p.what)
	c.first = load(&p.first)
	return c, c.first == c.last && c.last != 0
}

// What packs the kind of an operation, its form, its reduction and its communicator.
func What(k Kind, form, op uint8, comm uint32) uint64 {
	return uint64(k) | uint64(form)<<8 | uint64(op)<<16 | uint64(comm)<<32
}

// Pair packs two numbers: the type and the tag, or the peer and the sequence number.
func Pair(a, b uint32) uint64 { return uint64(a) | uint64(b)<<32 }
