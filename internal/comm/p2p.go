package comm

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// The operations below take the error that the typed function found in its arguments, such as a type
// that cannot be sent. They check the communicator first and then the other arguments.

// noStatus is the status of a receive from ProcNull.
var noStatus = backend.Status{Source: backend.ProcNull, Tag: AnyTag}

func backendTag(tag int) int {
	if tag == AnyTag {
		return backend.AnyTag
	}
	return tag
}

// checkSend checks the communicator and the arguments of a send; err is an error found before.
func (c *Comm) checkSend(dest, tag int, err error) error {
	switch {
	case c == nil || c.core == nil:
		return errNil
	case err != nil || c.core.life.ended():
	case uint(dest) >= uint(c.core.size) && dest != backend.ProcNull:
		err = c.badRank("destination", dest)
	case uint(tag) > c.core.maxTag:
		err = c.core.badTag(tag)
	default:
		return nil
	}
	return c.core.refuse(err)
}

// checkRecv is checkSend for a receive or probe.
func (c *Comm) checkRecv(source, tag int, err error) error {
	switch {
	case c == nil || c.core == nil:
		return errNil
	case err != nil || c.core.life.ended():
	case uint(source) >= uint(c.core.size) && source != backend.AnySource && source != backend.ProcNull:
		err = c.badRank("source", source)
	case uint(tag) > c.core.maxTag && tag != AnyTag:
		err = c.core.badTag(tag)
	default:
		return nil
	}
	return c.core.refuse(err)
}

func (c *Comm) badRank(what string, rank int) error {
	return fault(backend.ErrRank, "%s is rank %d of %d; want 0 to %d", what, rank, c.core.size, c.core.size-1)
}

func (k *core) badTag(tag int) error {
	if uint(tag) <= backend.MaxTag {
		caps := k.bc.Caps()
		return fault(backend.ErrTag, "tag %d is above %d, the largest tag of %s", tag, k.maxTag, cmp.Or(caps.Library, caps.Backend))
	}
	return fault(backend.ErrTag, "tag %d; want 0 to %d", tag, k.maxTag)
}

// InPieces reports whether the backend packs or unpacks a message of n bytes to or from a peer piece by piece.
func (c *Comm) InPieces(n, peer int) bool {
	return c != nil && c.core != nil && c.core.pieces > 0 && n >= c.core.pieces && peer != c.core.rank
}

// sendKind returns what the record of a send says.
func sendKind(mode backend.Mode) flight.Kind {
	if mode.Synchronous {
		return flight.Ssend
	}
	return flight.Send
}

// Send is the blocking send. If parts is not nil, the backend packs the message, which is InPieces, in buf.
func (c *Comm) Send(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, dest, tag int, mode backend.Mode, err error) error {
	if err = c.checkSend(dest, tag, err); err != nil || dest == backend.ProcNull {
		return c.Failed(op, dest, tag, err)
	}
	k := c.core
	t := k.record(k.message(sendKind(mode), backend.Blocking, len(buf), typ.ID, tag, dest))
	if parts == nil { // in the usual case a call less
		err = k.bc.Send(c.bound, buf, dest, tag, mode.Of(typ.Elems()))
	} else {
		err = c.send(typ, buf, parts, dest, tag, mode)
	}
	k.recorder.End(t, err)
	return c.Failed(op, dest, tag, err)
}

func (c *Comm) send(typ *backend.Datatype, buf []byte, parts backend.Parts, dest, tag int, mode backend.Mode) error {
	if parts == nil {
		return c.core.bc.Send(c.bound, buf, dest, tag, mode.Of(typ.Elems()))
	}
	p := c.core.job.blocking(nil, parts)
	c.core.bc.Isend(&p.req, buf, dest, tag, mode.Of(typ.Elems()))
	_, err := c.finish(p)
	return err
}

// Recv is the blocking receive. If parts is not nil, the backend may unpack the message, which is InPieces.
func (c *Comm) Recv(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, source, tag int, err error) (st backend.Status, _ error) {
	switch err = c.checkRecv(source, tag, err); {
	case err != nil:
		return st, c.Failed(op, source, tag, err)
	case source == backend.ProcNull:
		return noStatus, nil
	}
	k := c.core
	t := k.record(k.message(flight.Recv, backend.Blocking, len(buf), typ.ID, tag, source))
	if parts == nil {
		st, err = k.bc.Recv(c.bound, buf, source, backendTag(tag))
		err = typed(st, typ, err)
	} else {
		p := k.job.blocking(typ, parts)
		k.bc.Irecv(&p.req, buf, source, backendTag(tag))
		st, err = c.finish(p)
	}
	k.recorder.Length(t, st.Bytes)
	k.recorder.End(t, err)
	return st, c.Failed(op, source, tag, k.arrived(err))
}

// arrived adds to the error of a receive that is out of time which message has come instead.
func (k *core) arrived(why error) error {
	if why == nil || !errors.Is(why, backend.ErrTimeout) {
		return why
	}
	st, ok, err := k.bc.Probe(nil, backend.AnySource, backend.AnyTag, false)
	if !ok || err != nil {
		return why
	}
	return backend.While(why, fmt.Sprintf("one from rank %d with tag %d has arrived", st.Source, st.Tag))
}

// typed returns the error of an operation, which is a receive if typ is not nil. To receive other elements than those sent
// is one, and so is a part of an element where the type takes whole ones.
func typed(st backend.Status, typ *backend.Datatype, err error) error {
	if typ == nil {
		return err
	}
	if want := typ.Elems(); !st.Elems.Matches(want) && st.Bytes != 0 {
		return fault(backend.ErrType, "the message from rank %d with tag %d holds %v, the buffer %v", st.Source, st.Tag, st.Elems, want)
	}
	if long, ok := err.(*backend.TooLong); ok {
		return long.In(typ.Size, st)
	}
	if typ.Whole == typ && err == nil && st.Bytes%typ.Size != 0 {
		return notWhole(st, typ)
	}
	return err
}

func notWhole(st backend.Status, typ *backend.Datatype) error {
	return fault(backend.ErrCount, "the message has %d bytes, not a multiple of the element size %d", st.Bytes, typ.Size)
}

// Isend starts a send. If parts is not nil, the backend packs the message.
func (c *Comm) Isend(op string, typ *backend.Datatype, buf []byte, parts backend.Parts, dest, tag int, mode backend.Mode, err error) (*Request, error) {
	if err = c.checkSend(dest, tag, err); err != nil {
		return nil, c.Failed(op, dest, tag, err)
	}
	p := c.newPending(op, sendKind(mode), typ, len(buf), dest, tag)
	if parts != nil {
		p.req.Parts = parts
	}
	c.core.isend(&p.req, buf, dest, tag, mode.Of(typ.Elems()))
	return p.started(), nil
}

func (k *core) isend(q *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if dest == backend.ProcNull {
		q.Complete(backend.Status{}, nil)
	} else {
		k.bc.Isend(q, buf, dest, tag, mode)
	}
}

// Irecv starts a receive.
func (c *Comm) Irecv(op string, typ *backend.Datatype, buf []byte, source, tag int, err error) (*Request, error) {
	if err = c.checkRecv(source, tag, err); err != nil {
		return nil, c.Failed(op, source, tag, err)
	}
	p := c.newPending(op, flight.Recv, typ, len(buf), source, tag)
	c.core.irecv(&p.req, buf, source, tag)
	return p.started(), nil
}

func (k *core) irecv(q *backend.Request, buf []byte, source, tag int) {
	if source == backend.ProcNull {
		q.Complete(noStatus, nil)
	} else {
		k.bc.Irecv(q, buf, source, backendTag(tag))
	}
}

// newPending returns the record of an operation that has begun, and records it. The caller starts the operation, and
// calls started.
func (c *Comm) newPending(op string, kind flight.Kind, typ *backend.Datatype, bytes, peer, tag int) *pending {
	k := c.core
	p := k.job.pending()
	if p.spare == nil || p.used == len(p.spare) {
		p.spare, p.used = new([spareRequests]Request), 0
	}
	p.used++
	p.beginFor(c)
	// Most pointers have the values of the last operation: see beginFor.
	if p.name != op {
		p.name = op
	}
	if p.req.Owner != p {
		p.req.Owner = p
	}
	p.peer, p.tag = peer, tag
	tr := k.message(kind, backend.Nonblocking, bytes, typ.ID, tag, peer)
	if kind != flight.Recv && kind != flight.MessageRecv {
		typ = nil
	}
	if p.typ != typ {
		p.typ = typ
	}
	p.ticket, p.what = k.record(tr), tr.what
	if typ != nil {
		k.recorder.Length(p.ticket, 0) // see Received
	}
	p.req.Begin()
	return p
}

// finish waits for a request of the job and returns it to the pool, unless it could not be ended. The backend does not
// use its parts afterwards.
func (c *Comm) finish(p *pending) (backend.Status, error) {
	if why := c.core.bc.Await(c.bound, &p.req); why != nil && !c.core.withdraw(&p.req, why, nil) {
		return backend.Status{}, why
	}
	st, err := p.received()
	c.core.job.put(p)
	return st, err
}

// received returns the result of the message's request, which is complete.
func (p *pending) received() (backend.Status, error) {
	return p.req.Status, typed(p.req.Status, p.typ, p.req.Err)
}

// RecvAppend receives a message into memory that alloc returns for the number of its elements.
func (c *Comm) RecvAppend(typ *backend.Datatype, source, tag int, err error, alloc func(n int) []byte) (st backend.Status, _ error) {
	const op = "recvappend"
	if err := c.checkRecv(source, tag, err); err != nil {
		return st, c.Failed(op, source, tag, err)
	}
	if source == backend.ProcNull {
		return noStatus, nil
	}
	c = c.withDeadline()
	k := c.core
	for { // until the sender of a message does not take it back
		var m backend.Matched
		t := k.record(k.message(flight.RecvAppend, backend.Blocking, 0, typ.ID, tag, source))
		m, st, _, err = k.bc.Mprobe(c.bound, source, backendTag(tag), true)
		k.recorder.Length(t, st.Bytes)
		k.recorder.End(t, err)
		if err != nil {
			return backend.Status{}, c.Failed(op, source, tag, err)
		}
		if st.Bytes%typ.Size == 0 {
			st, err = c.imrecv(m, typ, alloc(st.Bytes/typ.Size))
		} else if _, err = c.imrecv(m, typ, make([]byte, st.Bytes)); err == nil {
			err = notWhole(st, typ)
		}
		if err != backend.TookBack {
			return st, c.Failed(op, st.Source, st.Tag, err)
		}
	}
}

// imrecv receives a matched message.
func (c *Comm) imrecv(m backend.Matched, typ *backend.Datatype, buf []byte) (backend.Status, error) {
	p := c.core.job.blocking(typ, nil)
	c.core.bc.Imrecv(&p.req, m, buf)
	return c.finish(p)
}
