package cohort

import (
	"errors"
	"io"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The flight recorder: what every rank notes of its operations, docs/flight.md. Reading a clock costs
// more than all the rest of it. So it is read where the time is not another rank's as well: before a
// receive, which waits anyway, and after a short send, whose message is on its way by then; and
// nonblocking operations have no time until they are waited for.

// shortSend is the length in bytes up to which a send is noted without the time first. Longer ones
// take a multiple of what the clock does.
const shortSend = 1024

// namedCall marks a collective whose type is its name: one of cohort's own (maker).
const namedCall = 1 << 24

// message returns the first word of a record of a point-to-point operation.
func (k *core) message(kind flight.Kind, form backend.Form) uint64 {
	return flight.What(kind, uint8(form), 0, k.id)
}

// trace is a record yet to be begun: its words.
type trace struct{ what, count, typed, place uint64 }

// traceOf returns the record of a collective in a form, call's own. It is an argument because whoever
// calls has just stored it, next to the kind: to read the two as one word takes as long as all the rest.
// start is which start of a persistent one it is.
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

// ended notes how an operation ended.
func (k *core) ended(t flight.Ticket, err error) {
	if err == nil {
		k.recorder.End(t)
	} else {
		k.recorder.Fail(t, backend.Code(err))
	}
}

// DumpFlight writes the last operations of the calling rank to w, as the files of the flight recorder
// have them: cohort report reads it.
//
// Local; at any time, also while other goroutines are in operations, and after Close.
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

// Error says where the file is, after the error's own text.
func (e *recorded) Error() string { return e.err.Error() + "; flight recorder: " + e.where }

// Unwrap returns the error.
func (e *recorded) Unwrap() error { return e.err }

// record has the flight recorder write its file if an error is one that it does so for, and returns
// the error, with where the file is.
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
