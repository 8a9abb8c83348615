package comm

import (
	"errors"
	"io"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The flight recorder: the records of each rank's operations (docs/flight.md).

// trace is the words of a record that has not begun yet.
type trace struct{ what, count, typed, place uint64 }

// message returns the record of an operation on messages: its length in bytes, the type of its
// elements, its tag, and the other rank.
func (k *core) message(kind flight.Kind, form backend.Form, bytes int, typ uint32, tag, peer int) trace {
	return trace{
		what: flight.What(kind, uint8(form), 0, k.id), count: uint64(bytes),
		typed: flight.Pair(typ, uint32(tag)), place: flight.Pair(uint32(int32(peer)), 0),
	}
}

// numbered returns the record of an operation on the communicator or a window: a rank, and the number of
// the operation or of the window.
func (k *core) numbered(kind flight.Kind, rank int, number uint32) trace {
	return trace{what: flight.What(kind, uint8(backend.Blocking), 0, k.id), place: flight.Pair(uint32(int32(rank)), number)}
}

// traceOf returns the record of a collective call. form equals call.Form; it is passed because the
// caller has just stored that next to the kind, and reading it back here would be slow.
func (k *core) traceOf(call *backend.Call, form backend.Form) (t trace) {
	var op backend.OpCode
	if call.Op != nil {
		op = call.Op.Code
	}
	t.what = flight.What(flight.Kind(call.Coll), uint8(form), uint8(op), k.id)
	id := uint32(0)
	if call.Type != nil {
		id = call.Type.ID
		if call.Type.Call {
			t.what |= flight.NamedByType
		}
	}
	if t.count = uint64(call.Count); t.count == 0 && id != 0 {
		t.count = uint64(elemsOf(call)) // of a call whose counts differ between the ranks
	}
	t.typed = flight.Pair(id, 0)
	t.place = flight.Pair(uint32(int32(call.Root)), call.Seq)
	return t
}

// elemsOf returns how many elements a rank sends or receives in a call, whichever are more.
func elemsOf(call *backend.Call) int {
	if call.Err != nil || call.Type == nil || call.Type.Size == 0 {
		return 0
	}
	side := func(b []byte, counts []int) (n int) {
		if counts == nil {
			return elems(call, b)
		}
		for _, c := range counts {
			n += c
		}
		return n
	}
	return max(side(call.Send, call.SendCounts), side(call.Recv, call.RecvCounts))
}

// record records that an operation begins.
func (k *core) record(t trace) flight.Ticket {
	return k.recorder.Begin(t.what, t.count, t.typed, t.place)
}

// length tells the recorder how many bytes a call moves, if it counts operations.
func (k *core) length(t flight.Ticket, call *backend.Call) {
	if k.recorder.Counts() {
		k.recorder.Length(t, bytesOf(call))
	}
}

func bytesOf(call *backend.Call) int {
	n := elemsOf(call)
	if n > 0 {
		n *= call.Type.Size
	}
	return n
}

// traced runs an operation that waits, and records it.
func (k *core) traced(t trace, run func() error) error {
	ticket := k.record(t)
	err := run()
	k.recorder.End(ticket, err)
	return err
}

// BeginRegion records that a region of the program begins.
func (c *Comm) BeginRegion(name string) flight.Ticket {
	if c == nil || c.core == nil {
		return 0
	}
	k := c.core
	id := datatype.ID("region " + name)
	k.recorder.Type(id, name)
	return k.recorder.BeginRegion(flight.What(flight.Region, uint8(backend.Blocking), 0, k.id)|flight.NamedByType, flight.Pair(id, 0))
}

// EndRegion records that a region ends.
func (c *Comm) EndRegion(t flight.Ticket) {
	if c != nil && c.core != nil {
		c.core.recorder.EndRegion(t)
	}
}

// DumpFlight writes the last operations of the calling rank to w, in the format of the flight
// recorder's files.
func (c *Comm) DumpFlight(w io.Writer) error {
	var err error
	switch {
	case c == nil || c.core == nil:
		err = errNil
	case w == nil:
		err = fault(backend.ErrBuffer, "the writer is nil")
	default:
		err = c.core.recorder.Write(w)
	}
	return c.failed("dumpflight", err)
}

// dumped is an error that made the flight recorder write its file.
type dumped struct {
	err   error
	where string
}

// Error returns the error's text and then the path of the file.
func (e *dumped) Error() string { return e.err.Error() + "; flight recorder: " + e.where }

// Unwrap returns the error.
func (e *dumped) Unwrap() error { return e.err }

// isLoss reports whether an error says that a rank is lost, and has not left in good order.
func isLoss(err error) bool {
	var lost *backend.Fault
	return errors.Is(err, backend.ErrPeerLost) && !(errors.As(err, &lost) && lost.Left)
}

// allLeft reports whether an error says only that the ranks from which a message could come have left in good order. A
// communicator that is broken because of that is broken.
func allLeft(err error) bool {
	return errors.Is(err, backend.ErrPeerLost) && !errors.Is(err, backend.ErrBroken) && !isLoss(err)
}

// recorded makes the flight recorder write its file if err may be due to other ranks. It returns err,
// with the path of the file if one was written.
func (c *Comm) recorded(op string, err error) error {
	if c == nil || c.core == nil {
		return err
	}
	if c.core.job.ctx.Err() == nil {
		err = backend.Elsewhere(err)
	}
	if errors.Is(err, backend.ErrMismatch) {
		c.core.reported.Store(true)
	}
	if isLoss(err) { // also as the cause of ErrBroken
		c.core.job.follow(c.core)
	}
	cause := flight.NotDumped
	switch {
	case errors.Is(err, backend.ErrBroken):
		cause = flight.Broken
	case errors.Is(err, backend.ErrPeerLost):
		cause = flight.Lost
	case errors.Is(err, backend.ErrMismatch):
		cause = flight.Mismatch
	case errors.Is(err, backend.ErrTimeout):
		cause = flight.Timeout
	default:
		return err
	}
	var d *dumped
	if errors.As(err, &d) {
		return err
	}
	if where := c.core.recorder.Note(cause, op+": "+err.Error()); where != "" {
		return &dumped{err, where}
	}
	return err
}
