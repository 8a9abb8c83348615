package cohort

import (
	"errors"
	"io"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The flight recorder: the records of each rank's operations (docs/flight.md). Reading the clock costs
// more than everything else in it. So the clock is read where this delays no other rank: before a
// receive, which waits anyway, and after a short send, when the message is already on its way.
// Nonblocking operations have no time until they are waited for.

// shortSend is the length in bytes up to which a send is recorded before the clock is read. A longer
// send takes several times as long as reading the clock.
const shortSend = 1024

// namedCall marks a collective call of this package whose datatype carries its name (maker).
const namedCall = 1 << 24

// message returns the first word of a record of a point-to-point operation.
func (k *core) message(kind flight.Kind, form backend.Form) uint64 {
	return flight.What(kind, uint8(form), 0, k.id)
}

// trace is the words of a record that has not begun yet.
type trace struct{ what, count, typed, place uint64 }

// traceOf returns the record of a collective call. form equals call.Form; it is passed because the
// caller has just stored that next to the kind, and reading it back here would be slow. start is the
// number of the start of a persistent operation.
func (k *core) traceOf(call *backend.Call, form backend.Form, start uint32) (t trace) {
	var op backend.OpCode
	if call.Op != nil {
		op = call.Op.Code
	}
	t.what = flight.What(flight.Kind(call.Coll), uint8(form), uint8(op), k.id)
	id := uint32(0)
	if call.Type != nil {
		id = call.Type.ID
		if call.Type.Call {
			t.what |= namedCall
		}
	}
	t.count = uint64(call.Count)
	t.typed = flight.Pair(id, start)
	t.place = flight.Pair(uint32(int32(call.Root)), call.Seq)
	return t
}

// ended records how an operation ended.
func (k *core) ended(t flight.Ticket, err error) {
	if err == nil {
		k.recorder.End(t)
	} else {
		k.recorder.Fail(t, backend.Code(err))
	}
}

// DumpFlight writes the last operations of the calling rank to w, in the format of the flight
// recorder's files. The command cohort report reads it.
//
// Local. It can be called at any time, during operations of other goroutines and after Close too.
//
// Errors: [ErrComm], and those of w.
func (c *Comm) DumpFlight(w io.Writer) error {
	if c == nil || c.core == nil {
		return c.failed("dumpflight", Undefined, Undefined, c.open())
	}
	if err := c.core.recorder.Write(w); err != nil {
		return c.failed("dumpflight", Undefined, Undefined, err)
	}
	return nil
}

// recorded is an error that made the flight recorder write its file.
type recorded struct {
	err   error
	where string
}

// Error returns the error's text and then the path of the file.
func (e *recorded) Error() string { return e.err.Error() + "; flight recorder: " + e.where }

// Unwrap returns the error.
func (e *recorded) Unwrap() error { return e.err }

// record makes the flight recorder write its file if err may be due to other ranks. It returns err,
// with the path of the file if one was written.
func (c *Comm) record(op string, err error) error {
	if c == nil || c.core == nil {
		return err
	}
	cause := flight.NotDumped
	switch {
	case errors.Is(err, ErrBroken):
		cause = flight.Broken
	case errors.Is(err, ErrPeerLost):
		cause = flight.Lost
	case errors.Is(err, ErrMismatch):
		cause = flight.Mismatch
	case errors.Is(err, ErrTimeout):
		cause = flight.Timeout
	default:
		return err
	}
	var r *recorded
	if errors.As(err, &r) {
		return err
	}
	if where := c.core.recorder.Note(cause, op+": "+err.Error()); where != "" {
		return &recorded{err, where}
	}
	return err
}
