//go:build cgo && linux

package mpi

import (
	"runtime"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// op is a request in progress: one of MPI's, or a guarded receive that has not matched.
type op struct {
	req *backend.Request // nil: nobody waits for it
	c   *comm
	h   libmpi.Request
	buf []byte

	receives    bool
	source, tag int // of a receive, as passed to MPI
	user        int // the tag as the caller gave it
	long        []byte
	canceled    bool // MPI_Cancel was called
	matched     bool // its message was counted when it was taken from the library's queue
	counted     bool // in engine.internal
	fate        fate
	why         error // of dropped
	until       time.Time

	coll *operation // a collective
	pin  *pin       // keeps the buffer in place while the operation is among the engine's
}

// op returns the record of a request, and reuses one if it can.
func (e *engine) op(r *backend.Request, c *comm, buf []byte, tag int) *op {
	o, ok := r.Impl.(*op)
	if !ok || o.req != nil || o.fate == orphaned {
		o = new(op)
		r.Impl = o
	}
	o.req, o.c, o.buf, o.h, o.user = r, c, buf, 0, tag
	o.receives, o.matched, o.canceled, o.long, o.fate = false, false, false, nil, awaited
	if o.internal() {
		o.counted = true
		e.internal.Add(1)
	}
	return o
}

// internal reports whether o is a message of a collective.
func (o *op) internal() bool { return o.user < 0 && o.user != backend.AnyTag }

// uncount removes o from the count of engine.internal.
func (o *op) uncount() {
	if o.counted {
		o.counted = false
		o.c.p.engine.internal.Add(-1)
	}
}

// pin keeps a buffer in place. Operations in progress that began one after the other with the same buffer share one:
// it takes long to pin memory that is pinned already.
type pin struct {
	pinner runtime.Pinner
	at     *byte
	users  int
}

// pins are those of the engine.
type pins struct {
	last *pin // that of the operation that was added last
	idle []*pin
}

// keep pins the memory of an operation that the library goes on with. A call that completes its operation needs no pin:
// the operation refers to the memory, which does not move meanwhile. The lock is held.
func (e *engine) keep(o *op) {
	b := o.buf
	if o.long != nil {
		b = o.long
	}
	if len(b) == 0 {
		return
	}
	p := e.pins.last
	if p == nil || p.at != &b[0] {
		if n := len(e.pins.idle); n > 0 {
			p, e.pins.idle = e.pins.idle[n-1], e.pins.idle[:n-1]
		} else {
			p = new(pin)
		}
		p.at = &b[0]
		p.pinner.Pin(p.at)
		e.pins.last = p
	}
	p.users++
	o.pin = p
}

// release undoes keep. The lock is held.
func (e *engine) release(o *op) {
	p := o.pin
	if p == nil {
		return
	}
	o.pin = nil
	if p.users--; p.users == 0 {
		p.pinner.Unpin()
		p.at = nil
		e.pins.idle = append(e.pins.idle, p)
	}
}

var truncateCode = backend.Code(backend.ErrTruncate)

// finish completes an operation that MPI reports as complete, or failed with err.
func (o *op) finish(st *libmpi.Status, err error) {
	if o.receives && !o.matched {
		o.c.received(st, err)
	}
	switch {
	case err != nil:
	case st.Flag == 2 && o.fate == dropped:
		err = o.why
	case st.Flag == 2:
		err = &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the request was canceled"}
	}
	if o.coll != nil {
		o.coll.finish(err)
		return
	}
	whole := err == nil
	if o.receives && st.Flag != 2 {
		err = o.c.fits(err, st, len(o.buf))
	}
	out := backend.Status{}
	if o.receives && st.Flag != 2 {
		out = backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}
		if o.internal() {
			out.Tag = o.user
		}
		if o.long != nil && whole {
			copy(o.buf, o.long)
		}
	}
	o.complete(out, err)
}

// received counts the message of a receive that has ended.
func (c *comm) received(st *libmpi.Status, err error) {
	switch {
	case err == nil && st.Flag == 2: // canceled
	case err == nil || backend.Code(err) == truncateCode:
		c.gate.Count(-1)
	default:
		c.miscounts.Store(true)
	}
}

// complete completes the request. An abandoned request was completed before. A collective starts its next messages
// inside Complete, so o is counted until then: engine.internal is not 0 in between.
func (o *op) complete(st backend.Status, err error) {
	r, e := o.req, &o.c.p.engine
	counted := o.counted // read now, because Complete may use o for the next message
	o.req, o.buf, o.long, o.counted = nil, nil, nil, false
	if r != nil {
		r.Complete(st, err)
	}
	if counted {
		e.internal.Add(-1)
	}
}
