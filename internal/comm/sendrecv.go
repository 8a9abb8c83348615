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

// checkSendrecv checks the arguments of a combined send and receive. It reports whether it is in place.
func (c *Comm) checkSendrecv(op string, send []byte, dest, sendTag int, recv []byte, source, recvTag int, err error) (same bool, _ error) {
	if err := c.checkSend(dest, sendTag, err); err != nil {
		return false, c.Failed(op, dest, sendTag, err)
	}
	same = view.Same(send, recv)
	if !same && view.Overlap(send, recv) {
		err = errOverlap
	}
	if err := c.checkRecv(source, recvTag, err); err != nil {
		return false, c.Failed(op, source, recvTag, err)
	}
	return same, nil
}

// sendrecvTrace is the record of a combined send and receive. It has the receive's tag, and the
// destination in the field of a collective's number.
func (k *core) sendrecvTrace(form backend.Form, typ *backend.Datatype, recv []byte, dest, source, recvTag int) trace {
	tr := k.message(flight.Sendrecv, form, len(recv), typ.ID, recvTag, source)
	tr.place = flight.Pair(uint32(int32(source)), uint32(int32(dest)))
	return tr
}

// keep returns a copy of the content of buf, to be put back. In place, the message received may arrive
// before the old content is sent.
func keep(buf []byte) *[]byte {
	kept := copies.Get().(*[]byte)
	*kept = append((*kept)[:0], buf...)
	return kept
}

// Sendrecv sends and receives at the same time. The backend packs the one message if out is not nil, and may unpack the
// other if in is not nil.
func (c *Comm) Sendrecv(typ *backend.Datatype, send []byte, out backend.Parts, dest, sendTag int,
	recv []byte, in backend.Parts, source, recvTag int, err error) (backend.Status, error) {
	const op = "sendrecv"
	same, err := c.checkSendrecv(op, send, dest, sendTag, recv, source, recvTag, err)
	if err != nil {
		return backend.Status{}, err
	}
	if source == backend.ProcNull {
		return noStatus, c.Send(op, typ, send, out, dest, sendTag, backend.Standard, nil)
	}
	c = c.withDeadline()
	k := c.core
	t := k.record(k.sendrecvTrace(backend.Blocking, typ, recv, dest, source, recvTag))
	var kept *[]byte
	if same && dest != backend.ProcNull {
		kept = keep(send)
		send = *kept
	}
	p := k.job.blocking(typ, in)
	k.bc.Irecv(&p.req, recv, source, backendTag(recvTag))
	if dest != backend.ProcNull {
		if err := c.send(typ, send, out, dest, sendTag, backend.Standard); err != nil {
			k.bc.Cancel(&p.req)
			_, _ = c.finish(p) // it may have matched a message that moves, which only the deadline gives up
			k.recorder.End(t, err)
			return backend.Status{}, c.Failed(op, dest, sendTag, err) // dest may still read the copy
		}
		if kept != nil {
			copies.Put(kept)
		}
	}
	st, err := c.finish(p)
	k.recorder.Length(t, len(send)+st.Bytes)
	k.recorder.End(t, err)
	return st, c.Failed(op, source, recvTag, k.arrived(err))
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

// Isendrecv starts a send and a receive.
func (c *Comm) Isendrecv(typ *backend.Datatype, send []byte, dest, sendTag int, recv []byte, source, recvTag int, err error) (*Request, error) {
	const op = "isendrecv"
	same, err := c.checkSendrecv(op, send, dest, sendTag, recv, source, recvTag, err)
	if err != nil {
		return nil, err
	}
	k := c.core
	x := &exchange{k: k, dest: dest, sendTag: sendTag, typ: typ}
	if same && dest != backend.ProcNull {
		x.kept = keep(send)
		send = *x.kept
	}
	tr := k.sendrecvTrace(backend.Nonblocking, typ, recv, dest, source, recvTag)
	return c.startExchange(x, op, tr, send, recv, source, recvTag), nil
}

// IrecvThen is Irecv that calls a function with the status when the message has been received, before Wait
// returns. The backend may unpack the message if parts is not nil.
func (c *Comm) IrecvThen(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, source, tag int, then func(backend.Status), err error) (*Request, error) {
	if then == nil {
		return c.Irecv(op, typ, buf, source, tag, err)
	}
	if err := c.checkRecv(source, tag, err); err != nil {
		return nil, c.Failed(op, source, tag, err)
	}
	x := &exchange{k: c.core, dest: backend.ProcNull, typ: typ, then: then}
	x.recv.Parts = parts
	tr := c.core.message(flight.Recv, backend.Nonblocking, len(buf), typ.ID, tag, source)
	return c.startExchange(x, op, tr, nil, buf, source, tag), nil
}

func (c *Comm) startExchange(x *exchange, op string, tr trace, send, recv []byte, source, recvTag int) *Request {
	k := c.core
	q := &Request{pending: k.job.pending()}
	q.op, q.name, q.peer, q.tag = x, op, source, recvTag
	q.beginFor(c)
	q.ticket, q.what = k.record(tr), tr.what
	k.recorder.Length(q.ticket, len(send)) // see Received
	x.recv.Owner, x.send.Owner = q, q
	x.recv.Begin()
	k.irecv(&x.recv, recv, source, recvTag)
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
