//go:build cgo && linux

package mpi

import (
	"runtime"

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
	detached    []byte // where a receive of postGuarded arrives
	queued      bool   // in the communicator's queue, not posted to MPI
	canceled    bool   // MPI_Cancel was called

	coll *operation // a collective

	pins   runtime.Pinner
	pinUse bool
}

// op returns the record of a request, and reuses one if it can.
func (e *engine) op(r *backend.Request, c *comm, buf []byte) *op {
	o, ok := r.Impl.(*op)
	if !ok || o.req != nil {
		o = new(op)
		r.Impl = o
	}
	o.req, o.c, o.buf, o.h = r, c, buf, 0
	o.receives, o.queued, o.canceled, o.long = false, false, false, nil
	return o
}

// pin keeps the buffer in place until the operation is complete.
func (o *op) pin() { o.pinned(o.buf) }

func (o *op) pinned(b []byte) {
	if len(b) > 0 {
		o.pins.Pin(&b[0])
		o.pinUse = true
	}
}

var truncateCode = backend.Code(backend.ErrTruncate)

// finish completes an operation that MPI reports as complete, or failed with err.
func (o *op) finish(st *libmpi.Status, err error) {
	switch {
	case err != nil:
		err = o.c.noteFailure(err)
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
	if o.detached != nil {
		switch {
		case whole:
			o.copyBack(int(st.Bytes))
		case backend.Code(err) == truncateCode:
			o.copyBack(len(o.buf))
		default:
			o.copyBack(0)
		}
	}
	out := backend.Status{}
	if o.receives && st.Flag != 2 {
		out = backend.Status{Source: int(st.Source), Tag: int(st.Tag), Bytes: int(st.Bytes)}
		if o.user < 0 && o.user != backend.AnyTag {
			out.Tag = o.user
		}
		if o.long != nil && whole {
			copy(o.buf, o.long)
		}
	}
	o.complete(out, err)
}

// complete unpins the buffer and completes the request. An abandoned request was completed before.
func (o *op) complete(st backend.Status, err error) {
	if o.pinUse {
		o.pins.Unpin()
		o.pinUse = false
	}
	r := o.req
	o.req, o.buf, o.long = nil, nil, nil
	if r != nil {
		r.Complete(st, err)
	}
}
