package comm

import (
	"cmp"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// copies holds memory for the messages of Sendrecv in place.
var copies = sync.Pool{New: func() any { return new([]byte) }}

// Side is one side of a combined send and receive, as the calling rank sees it. The message that the backend packs or
// unpacks by Parts is InPieces.
type Side struct {
	Buf       []byte
	Parts     backend.Parts // nil: Buf is the message
	Peer, Tag int
}

// checkSendrecv checks the arguments of a combined send and receive. It reports whether it is in place.
func (c *Comm) checkSendrecv(op string, out, in *Side, err error) (same bool, _ error) {
	if err := c.checkSend(out.Peer, out.Tag, err); err != nil {
		return false, c.Failed(op, out.Peer, out.Tag, err)
	}
	same = view.Same(out.Buf, in.Buf)
	if !same && view.Overlap(out.Buf, in.Buf) {
		err = errOverlap
	}
	if err := c.checkRecv(in.Peer, in.Tag, err); err != nil {
		return false, c.Failed(op, in.Peer, in.Tag, err)
	}
	return same, nil
}

// sendrecvTrace is the record of a combined send and receive. It has the receive's tag, and the
// destination in the field of a collective's number.
func (k *core) sendrecvTrace(form backend.Form, typ *backend.Datatype, dest int, in *Side) trace {
	tr := k.message(flight.Sendrecv, form, len(in.Buf), typ.ID, in.Tag, in.Peer)
	tr.place = flight.Pair(uint32(int32(in.Peer)), uint32(int32(dest)))
	return tr
}

// keep returns a copy of the content of buf, to be put back. In place, the message received may arrive
// before the old content is sent.
func keep(buf []byte) *[]byte {
	kept := copies.Get().(*[]byte)
	*kept = append((*kept)[:0], buf...)
	return kept
}

// Sendrecv sends and receives at the same time.
func (c *Comm) Sendrecv(typ *backend.Datatype, out, in Side, err error) (backend.Status, error) {
	const op = "sendrecv"
	same, err := c.checkSendrecv(op, &out, &in, err)
	if err != nil {
		return backend.Status{}, err
	}
	if in.Peer == backend.ProcNull {
		return noStatus, c.Send(op, typ, out.Buf, out.Parts, out.Peer, out.Tag, backend.Standard, nil)
	}
	c = c.withDeadline()
	k := c.core
	t := k.record(k.sendrecvTrace(backend.Blocking, typ, out.Peer, &in))
	var kept *[]byte
	if same && out.Peer != backend.ProcNull {
		kept = keep(out.Buf)
		out.Buf = *kept
	}
	p := k.job.blocking(typ, in.Parts)
	k.bc.Irecv(&p.req, in.Buf, in.Peer, backendTag(in.Tag))
	if out.Peer != backend.ProcNull {
		if err := c.send(typ, out.Buf, out.Parts, out.Peer, out.Tag, backend.Standard); err != nil {
			k.bc.Cancel(&p.req)
			_, _ = c.finish(p) // it may have matched a message that moves, which only the deadline gives up
			k.recorder.End(t, err)
			return backend.Status{}, c.Failed(op, out.Peer, out.Tag, err) // the destination may still read the copy
		}
		if kept != nil {
			copies.Put(kept)
		}
	}
	st, err := c.finish(p)
	k.recorder.Length(t, len(out.Buf)+st.Bytes)
	k.recorder.End(t, err)
	return st, c.Failed(op, in.Peer, in.Tag, k.arrived(err))
}

// exchange is a nonblocking combined send and receive, a backend.Operation.
type exchange struct {
	k             *core
	recv, send    backend.Request
	kept          *[]byte // the copy that is sent in place
	dest, sendTag int
	typ           *backend.Datatype
	then          func(backend.Status) // called with the status of a successful receive, and then nil
}

// Isendrecv starts a send and a receive. out and in have no Parts.
func (c *Comm) Isendrecv(typ *backend.Datatype, out, in Side, err error) (*Request, error) {
	const op = "isendrecv"
	same, err := c.checkSendrecv(op, &out, &in, err)
	if err != nil {
		return nil, err
	}
	k := c.core
	x := &exchange{k: k, dest: out.Peer, sendTag: out.Tag, typ: typ}
	if same && out.Peer != backend.ProcNull {
		x.kept = keep(out.Buf)
		out.Buf = *x.kept
	}
	tr := k.sendrecvTrace(backend.Nonblocking, typ, out.Peer, &in)
	return c.startExchange(x, op, tr, out.Buf, &in), nil
}

// IrecvThen is Irecv that calls a function with the status when the message has been received, before Wait
// returns.
func (c *Comm) IrecvThen(op string, typ *backend.Datatype, in Side, then func(backend.Status), err error) (*Request, error) {
	if then == nil {
		return c.Irecv(op, typ, in.Buf, in.Peer, in.Tag, err)
	}
	if err := c.checkRecv(in.Peer, in.Tag, err); err != nil {
		return nil, c.Failed(op, in.Peer, in.Tag, err)
	}
	x := &exchange{k: c.core, dest: backend.ProcNull, typ: typ, then: then}
	x.recv.Parts = in.Parts
	tr := c.core.message(flight.Recv, backend.Nonblocking, len(in.Buf), typ.ID, in.Tag, in.Peer)
	return c.startExchange(x, op, tr, nil, &in), nil
}

func (c *Comm) startExchange(x *exchange, op string, tr trace, send []byte, in *Side) *Request {
	k := c.core
	q := &Request{pending: k.job.pending()}
	q.op, q.name, q.peer, q.tag = x, op, in.Peer, in.Tag
	q.beginFor(c)
	q.ticket, q.what = k.record(tr), tr.what
	k.recorder.Length(q.ticket, len(send)) // see Received
	x.recv.Owner, x.send.Owner = q, q
	x.recv.Begin()
	k.irecv(&x.recv, in.Buf, in.Peer, in.Tag)
	x.send.Begin()
	k.isend(&x.send, send, x.dest, x.sendTag, backend.Standard.Of(x.typ.Elems()))
	k.recorder.Started(q.ticket)
	q.open()
	return q
}

// Ready implements backend.Operation.
func (x *exchange) Ready() bool { return x.recv.Ready() && x.send.Ready() }

// Start implements backend.Operation. It is not called.
func (x *exchange) Start() {}

// Err implements backend.Operation.
func (x *exchange) Err() error {
	if err := cmp.Or(typed(x.recv.Status, x.typ, x.recv.Err), x.send.Err); err != nil {
		return err
	}
	if then := x.then; then != nil {
		x.then = nil
		then(x.recv.Status)
	}
	return nil
}

// End implements backend.Operation. It withdraws both messages.
func (x *exchange) End(why error) error {
	if !x.recv.Ready() {
		why = x.k.arrived(why)
	}
	of := x.recv.Owner.(*Request).pending
	for _, q := range []*backend.Request{&x.recv, &x.send} {
		if !q.Ready() && !x.k.withdraw(q, why, of) {
			return why
		}
	}
	return nil
}

// Release implements backend.Operation.
func (x *exchange) Release() {
	if x.kept != nil && x.Err() == nil { // the destination has read it
		copies.Put(x.kept)
	}
}
