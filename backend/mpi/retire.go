//go:build cgo && linux

package mpi

import (
	"encoding/binary"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A library gives a new communicator the context id of one that was freed. A message that was sent on the old one and not
// received would then be received on the new one. So Close does not free a communicator. It retires it, and the ranks free it
// once nothing can arrive on it any more: each has closed it, and together they have received as many messages on it as they
// have sent.
//
//   - A rank that has closed the communicator, and has no call in the library that uses it, reports to the communicator's
//     rank 0 its balance, which is how many more messages it has sent than received, and how many collectives it has begun.
//     From then on it only receives.
//   - Once all ranks have reported and the balances do not add up to 0, rank 0 tells the others. Each receives and discards
//     what it finds, and reports that too. No rank does so earlier, because a synchronous send waits for a receive and not for
//     Close.
//   - Once the balances add up to 0, rank 0 tells the others, and each frees the communicator.
//
// Reports and answers are controls on the communicator's own ctl, and are not counted. All of them have been received when a
// rank frees the communicator: with a sum of 0, no rank has received a message that it has not reported, and a rank frees the
// communicator after the answer.
//
// No call waits for this. Derive and Close take the steps that are possible (tend). All members come to Derive at the same
// time, so the communicators that they have closed before are freed one or two calls later, and are never many.
//
// A communicator is in one place:
//
//	from      event                                                                          to
//	-         begin                                                                          open
//	open      Close of the communicator or of the world (shut)                               retired
//	retired   rank 0 answers mayFree, and the library has no operation of it any more        freed
//	retired   rank 0 answers mustKeep: a rank cannot count, or collectives do not match      kept
//
//	shared words    written by
//	engine.comms    whoever makes or closes a communicator, and tend, under the engine's mu
//	gate's tally    whoever sends or receives a message: it is the balance
//	calls           whoever begins a collective of the library, inside the gate
//	miscounts       whoever learns that a call in the library has failed
//	retirement      tend, with engine.tending locked, once the gate is empty
//
// Invariant: a rank frees a communicator only if every message that was sent on data or ctl has been received. If that cannot
// be known, no rank frees it.

// comms are the communicators by their place. The engine's mu guards them. The lists are replaced, never modified.
type comms struct {
	open, retired, kept []*comm
	ended               bool // the world is closed, and every communicator made from now on is closed at once
}

// add puts a new communicator among the open ones.
func (e *engine) add(c *comm) {
	e.mu.Lock()
	e.comms.open = append(slices.Clip(e.comms.open), c)
	ended := e.comms.ended
	e.mu.Unlock()
	if ended {
		e.shut(c)
	}
}

// shutAll closes the communicators that are open, and those made from now on.
func (e *engine) shutAll() {
	e.mu.Lock()
	e.comms.ended = true
	comms := e.comms.open
	e.mu.Unlock()
	for _, c := range comms {
		e.shut(c)
	}
}

func (e *engine) remove(c *comm) {
	e.mu.Lock()
	e.comms.open = without(e.comms.open, c)
	e.mu.Unlock()
}

// shut closes a communicator, unless that was done before.
func (e *engine) shut(c *comm) {
	if !c.gate.Shut() {
		return
	}
	c.drop(backend.CommClosed)
	e.mu.Lock()
	e.comms.open = without(e.comms.open, c)
	e.comms.retired = append(slices.Clip(e.comms.retired), c)
	e.mu.Unlock()
}

// without returns the communicators without one.
func without(list []*comm, c *comm) []*comm {
	return slices.DeleteFunc(slices.Clone(list), func(d *comm) bool { return d == c })
}

// uncounted notes that a call of the library has failed, and with it the count of messages.
func (c *comm) uncounted(code libmpi.Code) {
	if code > 0 || code == libmpi.NoMemory { // with the shim's other codes it was not made
		c.miscounts.Store(true)
	}
}

// retirement is what a closed communicator's ranks know of each other.
type retirement struct {
	reported bool
	told     int32 // the balance that this rank has reported
	answer   answer
	// On rank 0:
	reports int   // ranks that have reported
	sum     int32 // of the balances they have reported
	keep    bool  // a rank cannot count its messages, or the ranks have begun different collectives
}

// answer is the last answer of rank 0, which never gives an earlier one again.
type answer byte

const (
	noAnswer    answer = iota // some ranks have not reported
	mustDiscard               // all have closed the communicator, and messages are on their way
	mayFree                   // the balances add up to 0
	mustKeep                  // it is not known whether they do; also the answer of a rank that cannot report
)

// report is what a rank tells rank 0.
type report struct {
	change int32  // of its balance since the last report
	calls  uint32 // the collectives that it has begun
	first  bool
	lost   bool
}

func (r report) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, uint32(r.change))
	b = binary.LittleEndian.AppendUint32(b, r.calls)
	return append(b, bit(r.first), bit(r.lost))
}

func decodeReport(b []byte) report {
	return report{int32(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint32(b[4:]), b[8] != 0, b[9] != 0}
}

// tend frees the retired communicators on which nothing can arrive any more, and tells the other ranks what they need
// to know for that. It does not wait.
func (e *engine) tend() {
	if !libmpi.MayCall() || !e.tending.TryLock() {
		return
	}
	defer e.tending.Unlock()
	e.poll(1)
	e.mu.Lock()
	retired := e.comms.retired
	e.mu.Unlock()
	for _, c := range retired {
		if !c.advance() {
			continue
		}
		kept := c.retirement.answer == mustKeep
		if !kept {
			c.free()
		}
		e.mu.Lock()
		e.comms.retired = without(e.comms.retired, c)
		if kept {
			e.comms.kept = append(slices.Clip(e.comms.kept), c)
		}
		e.mu.Unlock()
	}
}

// advance takes the steps of a retired communicator that are possible now. It returns true once rank 0 has answered and
// the library has no operation of the communicator any more.
func (c *comm) advance() bool {
	e, r := &c.p.engine, &c.retirement
	if !c.gate.Empty() || !e.releasePrepared(c) {
		return false
	}
	for c.takeOne() {
	}
	if balance := c.gate.Tally(); !r.reported || balance != r.told {
		say := report{balance - r.told, c.calls.Load(), !r.reported, c.miscounts.Load()}
		r.reported, r.told = true, balance
		if c.rank == 0 {
			c.note(say)
		} else if !e.tell(c, say.encode(), 0, c.p.tags.report()) {
			r.answer = mustKeep
		}
	}
	if r.reports == c.size && r.answer < mayFree { // on rank 0
		switch {
		case r.keep:
			c.answer(mustKeep)
		case r.sum == 0:
			c.answer(mayFree)
		case r.answer == noAnswer:
			c.answer(mustDiscard)
		}
	}
	return r.answer >= mayFree && !e.has(c)
}

// answer tells all ranks how to go on.
func (c *comm) answer(a answer) {
	c.retirement.answer = a
	for to := 1; to < c.size; to++ {
		c.p.engine.tell(c, []byte{byte(a)}, to, c.p.tags.answer())
	}
}

// note takes a report on rank 0.
func (c *comm) note(s report) {
	r := &c.retirement
	if s.first {
		r.reports++
	}
	r.sum += s.change
	r.keep = r.keep || s.lost || s.calls != c.calls.Load()
}

// takeOne takes one message that has arrived, if there is one: a report, an answer, or one that must be discarded.
func (c *comm) takeOne() bool {
	e, tag := &c.p.engine, c.p.tags.answer()
	if c.rank == 0 {
		tag = c.p.tags.report()
	}
	var st libmpi.Status
	if c.retirement.answer == mustDiscard {
		if e.discardTaken(c) {
			return true
		}
		if arrived(c.data, &st) {
			return e.discard(c, c.data, &st)
		}
		if arrived(c.ctl, &st) && int(st.Tag) != tag {
			return e.discard(c, c.ctl, &st)
		}
	}
	b, _, ok := c.receiveControl(tag)
	switch {
	case !ok:
		return false
	case c.rank == 0:
		c.note(decodeReport(b))
	default:
		c.retirement.answer = answer(b[0])
	}
	return true
}

// arrived reports whether there is a message.
func arrived(on libmpi.Comm, st *libmpi.Status) bool {
	return on.Iprobe(backend.AnySource, backend.AnyTag, st) == 0 && st.Flag != 0
}

// discard starts the receive of a message that has arrived and that nobody receives any more.
func (e *engine) discard(c *comm, on libmpi.Comm, st *libmpi.Status) bool {
	var m libmpi.Message
	if !e.mayDiscard(st.Bytes) || on.Improbe(int(st.Source), int(st.Tag), &m, st) != 0 || st.Flag == 0 {
		return false
	}
	c.discard(m, st.Bytes)
	return true
}

// discardTaken does so with a message that the program has taken by Mprobe. No call uses c any more.
func (e *engine) discardTaken(c *comm) bool {
	for m := range c.taken.all {
		if e.mayDiscard(int64(m.st.Bytes)) {
			delete(c.taken.all, m)
			c.discard(m.m, int64(m.st.Bytes))
			return true
		}
	}
	return false
}

func (e *engine) mayDiscard(bytes int64) bool {
	return bytes <= discardMost && e.discarding() <= discardAtOnce
}

func (c *comm) discard(m libmpi.Message, bytes int64) {
	c.gate.Count(-1)
	c.receive(&op{c: c, receives: true, fate: unwanted, buf: make([]byte, max(bytes, 0))}, m, bytes)
}

const (
	discardMost   = 1 << 30  // bytes of the longest message that is received and discarded
	discardAtOnce = 64 << 20 // bytes being discarded above which no further receive starts
)

// free gives a retired communicator back to the library.
func (c *comm) free() {
	c.data.Free()
	c.ctl.Free()
}
