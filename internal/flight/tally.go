package flight

import (
	"math/bits"
	"runtime"

	"github.com/cohort-hpc/cohort/internal/word"
)

// tally counts the operations of a rank, if the rank is asked to: how many there were, their bytes, and their time.
// It is part of the image, so it outlives a killed process where the file is in memory. It has several tables, and an
// operation is counted in any of them.
//
// Invariant: the goroutine that has changed a table's busy from 0 to 1 alone writes to the table, until it stores 0.
type tally struct {
	tables  *[tables]table
	_       [0]word.Uint64 // aligns lengths where pointers have 32 bits, too
	lengths [Slots]uint64  // by record: the bytes of its operation, or the total ticks at the beginning of a region
}

const (
	tables    = 4             // more than there are goroutines that count at the same moment
	tableRows = 1 << rowsBits // at least one remains free
	rowsBits  = 9
)

type table struct {
	busy  uint64
	used  uint64 // rows
	total uint64 // ticks of all operations, without regions
	last  uint64 // the row that was found last
	_     [4]uint64
	rest  tallyRow // of the operations that have no row
	rows  [tableRows]tallyRow
}

// tallyRow is a table's row, a cache line long. A row whose key is 0 is free.
type tallyRow struct {
	key    uint64 // the record's kind, form, flags and communicator, and the class of the length
	name   uint64 // the type, if that names the operation
	calls  uint64
	bytes  uint64
	ticks  uint64
	least  uint64 // ticks of the fastest call
	waited uint64 // ticks for which a goroutine waited for an operation started before
	inside uint64 // ticks of the operations in a region
}

// Bits of a key, and of a record's kind, form and flags.
const (
	keyClass    = 0xff << 16 // of an operation that blocks; in a record, the reduction
	NamedByType = 1 << 24    // the type names the operation
	OfViews     = 1 << 25    // of AlltoallView
	Starts      = 1 << 26    // of the starts of a persistent operation
	mixedClass  = 0xff       // of a table with little room: lengths are not told apart
	manyComms   = 1<<32 - 1  // the same for communicators
)

// lengthClass groups lengths that differ by at most a fifth.
func lengthClass(n uint64) uint64 {
	if n < 4 {
		return n
	}
	k := bits.Len64(n)
	return min(uint64(k)<<2|n>>(k-3)&3, mixedClass-1)
}

// Counts reports whether operations are counted.
func (r *Ring) Counts() bool { return r.tally != nil }

// Length notes how many bytes an operation under way moves, if that is not the count of its record.
func (r *Ring) Length(t Ticket, bytes int) {
	if r.tally != nil {
		r.setLength(t, uint64(bytes))
	}
}

// setLength does nothing if the record is that of another operation by now.
func (r *Ring) setLength(t Ticket, n uint64) {
	if load(&r.recs[t%Slots].first) == uint64(t) {
		release(&r.tally.lengths[t%Slots], n)
	}
	runtime.KeepAlive(r)
}

// BeginRegion notes that a region begins, whose name is that of a type.
func (r *Ring) BeginRegion(what, typed uint64) Ticket {
	t := r.Begin(what, 0, typed, 0)
	if r.tally != nil {
		r.setLength(t, r.tally.total())
	}
	return t
}

// EndRegion notes that a region ends. It does nothing if the region has ended before. If its record has been overwritten,
// that is not known, and the region is not counted.
func (r *Ring) EndRegion(t Ticket) {
	p := &r.recs[t%Slots]
	switch {
	case load(&p.first) != uint64(t) || State(load(&p.state)) != Open:
	case r.tally != nil:
		r.finish(t, Done, now())
	default:
		r.change(t, Done, now())
	}
	runtime.KeepAlive(r)
}

// Started counts an operation that has been started and does not block, with the time that this took.
func (r *Ring) Started(t Ticket) {
	if r.tally != nil {
		r.started(t, 0)
	}
}

// Completed is Started, Received and End of an operation that was complete when it had been started.
func (r *Ring) Completed(t Ticket, received int) {
	if r.tally == nil {
		r.End(t, nil)
	} else {
		r.change(t, Done, r.started(t, received))
	}
}

func (r *Ring) started(t Ticket, received int) (at uint64) {
	p := &r.recs[t%Slots]
	what, begun, bytes := load(&p.what), load(&p.begun), load(&r.tally.lengths[t%Slots])
	x := r.tally.take()
	at = now()
	if load(&p.first) == uint64(t) {
		x.add(what, 1, bytes+uint64(received), at-begun, 0)
	} else {
		x.lost()
	}
	runtime.KeepAlive(r)
	return at
}

// lost counts an operation whose record other goroutines have overwritten, and gives the table back.
func (x *table) lost() {
	x.rest.calls++
	release(&x.busy, 0)
}

// Waited counts the time since Wait for an operation of a kind that Started has counted.
func (r *Ring) Waited(what, since uint64) {
	if r.tally != nil {
		ticks := now() - since
		r.tally.take().add(what, 0, 0, ticks, ticks)
		runtime.KeepAlive(r)
	}
}

// Received counts the bytes of a receive that Started has counted.
func (r *Ring) Received(what uint64, bytes int) {
	if r.tally != nil {
		r.tally.received(what, bytes)
		runtime.KeepAlive(r)
	}
}

func (c *tally) received(what uint64, bytes int) { c.take().add(what, 0, uint64(bytes), 0, 0) }

// add adds to the row of an operation that does not block, and gives the table back.
func (x *table) add(what, calls, bytes, ticks, waited uint64) {
	r := x.row(what&^keyClass, 0)
	r.calls += calls
	r.bytes += bytes
	r.ticks += ticks
	r.waited += waited
	release(&x.total, x.total+ticks)
	release(&x.busy, 0)
}

// finish notes how and when an operation that blocks has ended, and counts it.
func (r *Ring) finish(t Ticket, s State, at uint64) {
	p := &r.recs[t%Slots]
	what, typed, begun, bytes := load(&p.what), load(&p.typed), load(&p.begun), load(&r.tally.lengths[t%Slots])
	if load(&p.first) != uint64(t) {
		r.tally.take().lost()
		runtime.KeepAlive(r)
		return
	}
	kind := Kind(what)
	release(&p.state, at<<8|uint64(s))
	var total, name uint64
	switch {
	case kind == Region:
		total, bytes = r.tally.total()-bytes, 0
	case kind == WaitAny, kind == CreateGroup: // their counts are not bytes
		bytes = 0
	}
	if what&NamedByType != 0 {
		name = typed & (1<<32 - 1)
	}
	x := r.tally.take()
	row, ticks := x.row(what&^keyClass|lengthClass(bytes)<<16, name), at-begun
	if row.calls == 0 || ticks < row.least {
		row.least = ticks
	}
	row.calls++
	row.bytes += bytes
	row.ticks += ticks
	switch kind {
	case Region:
		row.inside += total
	case WaitAny: // it is recorded only if it waits
		row.waited += ticks
		fallthrough
	default:
		release(&x.total, x.total+ticks)
	}
	release(&x.busy, 0)
	runtime.KeepAlive(r)
}

// take reserves a table.
func (c *tally) take() *table {
	for i := 0; ; i++ {
		if t := &c.tables[i%tables]; swap(&t.busy, 0, 1) {
			return t
		}
		if i%tables == tables-1 {
			runtime.Gosched()
		}
	}
}

// total returns the ticks of all operations so far.
func (c *tally) total() (sum uint64) {
	for i := range c.tables {
		sum += load(&c.tables[i].total)
	}
	return sum
}

func (c *tally) copy(to *[tables]table) {
	for i := range c.tables {
		t := &c.tables[i]
		for !swap(&t.busy, 0, 1) {
			runtime.Gosched()
		}
		c := &to[i] // but for busy, which other goroutines look at
		c.used, c.total, c.rest, c.rows = t.used, t.total, t.rest, t.rows
		release(&t.busy, 0)
	}
}

// row returns the row of a key. In a table that is nearly full, lengths share a row, and then communicators do.
func (t *table) row(key, name uint64) *tallyRow {
	if r := &t.rows[t.last]; r.key == key && r.name == name {
		return r
	}
	for {
		const golden = 0x9e3779b97f4a7c15
		i := (key ^ name<<20) * golden >> (64 - rowsBits)
		for ; t.rows[i].key != 0; i = (i + 1) % tableRows {
			if r := &t.rows[i]; r.key == key && r.name == name {
				t.last = i
				return r
			}
		}
		switch {
		case t.used < tableRows*3/4:
		case key&keyClass != mixedClass<<16:
			key |= mixedClass << 16
			continue
		case t.used < tableRows*7/8:
		case key>>32 != manyComms:
			key |= manyComms << 32
			continue
		case t.used == tableRows-1:
			return &t.rest
		}
		t.used++
		t.rows[i].key, t.rows[i].name = key, name
		return &t.rows[i]
	}
}
