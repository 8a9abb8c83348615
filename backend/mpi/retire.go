//go:build cgo && linux

package mpi

import (
	"encoding/binary"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// A library gives a new communicator the context id of one that was freed. A message that was sent on the old one and
// not received would then be received on the new one. So Close does not free a communicator. It retires it, and the
// ranks free it once they know that nothing can arrive on it any more: each has closed it, and all of them together
// have received as many messages on it as they have sent.
//
//   - A rank that has closed the communicator, and has no call inside the library that uses it, reports to the
//     communicator's rank 0 how many more messages it has sent than received, and how many collectives it has begun.
//     From then on it only receives.
//   - Once all ranks have reported and the differences do not add up to 0, rank 0 tells the others. Each receives and
//     discards what it finds, and reports that too. Nobody does so before: a send waits for a receive, not for Close.
//   - Once the differences add up to 0, rank 0 tells the others, and each frees the communicator.
//
// Reports and answers travel on the communicator's own ctl. All of them have been received when it is freed: when the
// sum is 0 nobody has received a message that it has not reported, and a rank frees the communicator after the answer.
//
// Nobody waits for this: Derive and Close do what is possible (tend). All members come to Derive at the same time. So
// the communicators that they have closed before are freed one or two calls later, and there are never many of them.
//
// A communicator is in exactly one place: open (engine.comms), retired, kept because a rank cannot count its messages
// (engine.kept), or freed.

// uncounted notes that a call of the library has failed.
func (c *comm) uncounted(code libmpi.Code) {
	if code > 0 || code == libmpi.NoMemory { // with the shim's other codes it was not made
		c.miscounts.Store(true)
	}
}

// retirement is what a closed communicator's ranks know of each other. Only tend uses it.
type retirement struct {
	reported bool
	told     int32 // the balance that this rank has reported
	answer   byte
	// On rank 0:
	reports int   // ranks that have reported
	sum     int32 // of the balances they have reported
	keep    bool  // a rank cannot count its messages, or the ranks have begun different collectives
}

// The answers of rank 0.
const (
	noAnswer    byte = iota
	mustDiscard      // all have closed the communicator, and messages are on their way
	mayFree
	mustKeep
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

// shut closes a communicator, unless that was done before.
func (e *engine) shut(c *comm) {
	if !c.gate.Shut() {
		return
	}
	c.drop(backend.CommClosed)
	e.mu.Lock()
	e.comms = without(e.comms, c)
	e.retired = append(slices.Clip(e.retired), c)
	e.mu.Unlock()
}

// without returns the communicators without one. The lists are replaced, never modified.
func without(list []*comm, c *comm) []*comm {
	return slices.DeleteFunc(slices.Clone(list), func(d *comm) bool { return d == c })
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
	retired := e.retired
	e.mu.Unlock()
	for _, c := range retired {
		if !c.settle() {
			continue
		}
		kept := c.retirement.answer == mustKeep
		if !kept {
			c.free()
		}
		e.mu.Lock()
		e.retired = without(e.retired, c)
		if kept {
			e.kept = append(slices.Clip(e.kept), c)
		}
		e.mu.Unlock()
	}
}

// settle takes the steps of a retired communicator that are possible now. It returns true once rank 0 has answered and
// the library has no operation of the communicator any more.
func (c *comm) settle() bool {
	e, r := &c.p.engine, &c.retirement
	if !c.gate.Empty() || !e.releasePrepared(c) {
		return false
	}
	for c.hear() {
	}
	if balance := c.gate.Tally(); !r.reported || balance != r.told {
		say := report{balance - r.told, c.calls.Load(), !r.reported, c.miscounts.Load()}
		r.reported, r.told = true, balance
		if c.rank == 0 {
			c.note(say)
		} else if !e.tell(c, say.encode(), 0, c.p.folds.report()) {
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
func (c *comm) answer(a byte) {
	c.retirement.answer = a
	for to := 1; to < c.size; to++ {
		c.p.engine.tell(c, []byte{a}, to, c.p.folds.answer())
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

// hear takes one message that has arrived: a report, an answer, or one that must be discarded.
func (c *comm) hear() bool {
	e, f := &c.p.engine, c.p.folds
	tag := f.answer()
	if c.rank == 0 {
		tag = f.report()
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
	b, _, ok := c.receiveControl(tag, false)
	switch {
	case !ok:
		return false
	case c.rank == 0:
		c.note(decodeReport(b))
	default:
		c.retirement.answer = b[0]
	}
	return true
}

// arrived reports whether there is a message.
func arrived(on libmpi.Comm, st *libmpi.Status) bool {
	return on.Iprobe(backend.AnySource, backend.AnyTag, st) == 0 && st.Flag != 0
}

// arriving is a message that tell has sent, while the library receives it.
type arriving struct {
	req  backend.Request
	m    []byte // nil: there is none
	from int
}

// receiveControl receives a message that tell has sent, if one has arrived. It does not wait: with some settings of the
// user's the library sends even short messages by rendezvous, and the sender may be stopped. Calls with the same tag
// exclude each other. counted says whether the sender has counted the message.
func (c *comm) receiveControl(tag int, counted bool) (m []byte, from int, ok bool) {
	a := &c.arriving[tag-c.p.folds.notice()]
	if a.m == nil {
		var msg libmpi.Message
		var st libmpi.Status
		if code := c.ctl.Improbe(backend.AnySource, tag, &msg, &st); code != 0 || st.Flag == 0 {
			c.looked(code)
			return nil, 0, false
		}
		if counted {
			c.gate.Count(-1)
		}
		a.m, a.from = make([]byte, st.Bytes), int(st.Source)
		a.req.Begin()
		c.receive(&op{req: &a.req, c: c, buf: a.m, receives: true, fate: unwanted}, msg, st.Bytes)
	}
	if !a.req.Ready() {
		c.Poll()
	}
	if !a.req.Ready() {
		return nil, 0, false
	}
	m, a.m = a.m, nil
	return m, a.from, a.req.Err == nil
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

// discardTaken does so with a message that the program has taken. No call uses c any more.
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
