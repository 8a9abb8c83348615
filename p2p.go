package cohort

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Send sends buf to dest and returns when buf can be used again, which may be
// before the message is received (MPI-4.1 section 3.4, standard mode).
//
// Local to the two ranks: dest receives it with [Recv] or its like.
//
// Buffers: buf may be nil or empty.
//
// Errors: [ErrRank], [ErrTag], [ErrType] for bad arguments.
//
// Deadline: [ErrTimeout]; a message that has not matched is taken back.
func Send[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.send("send", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
}

// Ssend sends buf to dest and returns when a receive has matched it
// (synchronous mode).
//
// Local to the two ranks: dest receives it with [Recv] or its like.
//
// Buffers: buf may be nil or empty.
//
// Errors: [ErrRank], [ErrTag], [ErrType] for bad arguments.
//
// Deadline: [ErrTimeout]; a message that has not matched is taken back.
func Ssend[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.send("ssend", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err)
}

// Isend starts a [Send].
//
// Buffers: buf must not change until the request is complete.
func Isend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.isend("isend", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
}

// Issend starts an [Ssend].
//
// Buffers: buf must not change until the request is complete.
func Issend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.isend("issend", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err)
}

// Recv receives a message from source, or [AnySource], with a tag, or [AnyTag].
// Messages from one rank with one tag are received in the order sent.
//
// Local to the two ranks.
//
// Buffers: buf is at least as long as the message; of a longer message it gets
// the beginning, nothing behind it is written, and the error is [ErrTruncate].
//
// Errors: [ErrRank], [ErrTag], [ErrType] for bad arguments; [ErrPeerLost] if
// source is gone.
//
// Deadline: [ErrTimeout]; the receive is taken back, and the communicator stays
// usable.
func Recv[T any](c *Comm, buf []T, source, tag int) (Status, error) {
	typ, err := typeFor[T]()
	return c.recv("recv", typ, view.Bytes(buf), source, tag, err)
}

// Irecv starts a [Recv].
//
// Buffers: buf must not be used until the request is complete.
//
// Errors: those of [Recv]; on local, shm and tcp a pending receive from [AnySource]
// ends with [ErrPeerLost] when all other ranks have closed c, although this rank
// could still send to itself.
func Irecv[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.irecv("irecv", typ, view.Bytes(buf), source, tag, err)
}

// Sendrecv sends send to dest and receives recv from source at the same time, so
// that ranks that exchange messages do not wait for each other in a circle.
//
// Local to the ranks concerned; a Sendrecv can be received by a [Recv] and the
// other way round.
//
// Buffers: send and recv must not overlap ([ErrBuffer]); else as for [Send] and
// [Recv].
//
// Errors: those of [Send] and [Recv].
//
// Deadline: [ErrTimeout]; what has not matched is taken back.
func Sendrecv[T any](c *Comm, send []T, dest, sendTag int, recv []T, source, recvTag int) (Status, error) {
	typ, err := typeFor[T]()
	return c.sendrecv(typ, view.Bytes(send), dest, sendTag, view.Bytes(recv), source, recvTag, err)
}

// RecvAlloc receives a message of any length into a slice made for it.
//
// Local to the two ranks.
//
// Errors: those of [Recv]; [ErrCount] if the message is not a whole number of
// elements, and it is then received and dropped.
//
// Deadline: [ErrTimeout]; nothing is received.
func RecvAlloc[T any](c *Comm, source, tag int) ([]T, Status, error) {
	typ, err := typeFor[T]()
	if err == nil {
		err = c.checkRecv(source, tag)
	}
	if err != nil {
		return nil, Status{}, c.failed("recvalloc", source, tag, err)
	}
	if source == ProcNull {
		return nil, noStatus, nil
	}
	k := c.core
	t := k.fly.Begin(k.message(flight.RecvAlloc, backend.Blocking), 0, flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(source)), 0))
	m, st, _, err := k.bc.Mprobe(c.bound, source, backendTag(tag), true)
	k.ended(t, err)
	if err != nil {
		return nil, Status{}, c.failed("recvalloc", source, tag, err)
	}
	if st.Bytes%typ.Size != 0 {
		_, err := c.imrecv(m, make([]byte, st.Bytes))
		if err == nil {
			err = fault(ErrCount, fmt.Sprintf("the message has %d bytes, elements have %d", st.Bytes, typ.Size))
		}
		return nil, status(st), c.failed("recvalloc", st.Source, st.Tag, err)
	}
	buf := make([]T, st.Bytes/typ.Size)
	st, err = c.imrecv(m, view.Bytes(buf))
	if err != nil {
		return nil, status(st), c.failed("recvalloc", st.Source, st.Tag, err)
	}
	return buf, status(st), nil
}

// noStatus is the status of a receive from ProcNull.
var noStatus = Status{Source: ProcNull, Tag: AnyTag}

func backendTag(tag int) int {
	if tag == AnyTag {
		return backend.AnyTag
	}
	return tag
}

// checkSend checks the arguments of a send.
func (c *Comm) checkSend(dest, tag int) error {
	switch {
	case c == nil || c.core == nil || c.core.closed.Load():
		return c.open()
	case uint(dest) >= uint(c.core.size) && dest != ProcNull:
		return c.badRank("destination", dest)
	case uint(tag) > c.core.maxTag:
		return c.core.badTag(tag)
	}
	return nil
}

// checkRecv checks the arguments of a receive or probe.
func (c *Comm) checkRecv(source, tag int) error {
	switch {
	case c == nil || c.core == nil || c.core.closed.Load():
		return c.open()
	case uint(source) >= uint(c.core.size) && source != AnySource && source != ProcNull:
		return c.badRank("source", source)
	case uint(tag) > c.core.maxTag && tag != AnyTag:
		return c.core.badTag(tag)
	}
	return nil
}

func (c *Comm) badRank(what string, rank int) error {
	return c.core.argument(fault(ErrRank, fmt.Sprintf("%s %d of %d ranks", what, rank, c.core.size)))
}

func (k *core) badTag(tag int) error {
	if uint(tag) <= MaxTag {
		caps := k.bc.Caps()
		return k.argument(fault(ErrTag, fmt.Sprintf("%d is above %d, the largest tag of %s", tag, k.maxTag, cmp.Or(caps.Library, caps.Backend))))
	}
	return k.argument(fault(ErrTag, fmt.Sprintf("%d is not 0 to %d", tag, k.maxTag)))
}

// argument returns the error of a wrong argument, or on a broken communicator that
// it is broken.
func (k *core) argument(err error) error {
	if cause := k.bc.Broken(); cause != nil {
		return &backend.Broken{Cause: cause}
	}
	return err
}

// send is the blocking send; err is what the typed function found wrong already.
func (c *Comm) send(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) error {
	if err == nil {
		err = c.checkSend(dest, tag)
	}
	if err == nil && dest != ProcNull {
		k := c.core
		what := k.message(flight.Send+flight.Kind(mode), backend.Blocking)
		typed, place := flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(dest), 0)
		if mode == backend.Standard && len(buf) <= shortSend {
			t := k.fly.BeginUntimed(what, uint64(len(buf)), typed, place)
			if err = k.bc.Send(c.bound, buf, dest, tag, mode); err == nil {
				k.fly.EndTimed(t)
				return nil
			}
			k.ended(t, err)
		} else {
			t := k.fly.BeginSparse(what, uint64(len(buf)), typed, place)
			err = k.bc.Send(c.bound, buf, dest, tag, mode)
			k.ended(t, err)
		}
	}
	if err != nil {
		return c.failed(op, dest, tag, err)
	}
	return nil
}

func (c *Comm) recv(op string, typ *backend.Datatype, buf []byte, source, tag int, err error) (Status, error) {
	if err == nil {
		err = c.checkRecv(source, tag)
	}
	if err != nil {
		return Status{}, c.failed(op, source, tag, err)
	}
	if source == ProcNull {
		return noStatus, nil
	}
	k := c.core
	t := k.fly.BeginSparse(k.message(flight.Recv, backend.Blocking), uint64(len(buf)), flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(source)), 0))
	st, err := k.bc.Recv(c.bound, buf, source, backendTag(tag))
	if err != nil {
		k.ended(t, err)
		return status(st), c.failed(op, source, tag, err)
	}
	k.fly.End(t)
	return status(st), nil
}

// newRequest returns a begun request, and notes it.
func (c *Comm) newRequest(op string, kind flight.Kind, typ *backend.Datatype, bytes, peer, tag int) *Request {
	k := c.core
	q := &Request{c: c, name: op, peer: peer, tag: tag, begun: c.now(), req: k.job.request()}
	q.ticket = k.fly.BeginUntimed(k.message(kind, backend.Nonblocking), uint64(bytes), flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(peer)), 0))
	q.req.Begin()
	return q
}

// now returns when an operation begins, if its deadline counts from there.
func (c *Comm) now() time.Time {
	if c.bound == nil || c.bound.Timeout == 0 {
		return time.Time{}
	}
	return time.Now()
}

func (c *Comm) isend(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) (*Request, error) {
	if err == nil {
		err = c.checkSend(dest, tag)
	}
	if err != nil {
		return nil, c.failed(op, dest, tag, err)
	}
	q := c.newRequest(op, flight.Send+flight.Kind(mode), typ, len(buf), dest, tag)
	if dest == ProcNull {
		q.req.Complete(backend.Status{}, nil)
	} else {
		c.core.bc.Isend(q.req, buf, dest, tag, mode)
	}
	return q, nil
}

func (c *Comm) irecv(op string, typ *backend.Datatype, buf []byte, source, tag int, err error) (*Request, error) {
	if err == nil {
		err = c.checkRecv(source, tag)
	}
	if err != nil {
		return nil, c.failed(op, source, tag, err)
	}
	q := c.newRequest(op, flight.Recv, typ, len(buf), source, tag)
	if source == ProcNull {
		q.req.Complete(backend.Status{Source: ProcNull, Tag: AnyTag}, nil)
	} else {
		c.core.bc.Irecv(q.req, buf, source, backendTag(tag))
	}
	return q, nil
}

// request returns a request that was used before, or a new one.
func (j *job) request() *backend.Request {
	if q, ok := j.requests.Get().(*backend.Request); ok {
		return q
	}
	return new(backend.Request)
}

// finish waits for a request of the job's and puts it back; one that could not
// be ended is not put back.
func (c *Comm) finish(q *backend.Request) (backend.Status, error) {
	bc := c.core.bc
	if why := bc.Await(c.bound, q); why != nil {
		bc.Cancel(q)
		if bc.Await(&backend.Bound{Timeout: grace}, q) != nil {
			return backend.Status{}, why
		}
		if errors.Is(q.Err, ErrCanceled) {
			q.Err = why
		}
	}
	st, err := q.Status, q.Err
	c.core.job.requests.Put(q)
	return st, err
}

func (c *Comm) sendrecv(typ *backend.Datatype, send []byte, dest, sendTag int, recv []byte, source, recvTag int, err error) (Status, error) {
	if err == nil {
		err = c.checkSend(dest, sendTag)
	}
	if err != nil {
		return Status{}, c.failed("sendrecv", dest, sendTag, err)
	}
	if err = c.checkRecv(source, recvTag); err == nil && view.Overlap(send, recv) {
		err = fault(ErrBuffer, "send and recv overlap")
	}
	if err != nil {
		return Status{}, c.failed("sendrecv", source, recvTag, err)
	}
	if source == ProcNull {
		return noStatus, c.send("sendrecv", typ, send, dest, sendTag, backend.Standard, nil)
	}
	k := c.core
	// Of the two tags the receive's, and the destination where others have their number.
	t := k.fly.BeginSparse(k.message(flight.Sendrecv, backend.Blocking), uint64(len(recv)), flight.Pair(typ.ID, uint32(recvTag)), flight.Pair(uint32(int32(source)), uint32(int32(dest))))
	bc := k.bc
	q := k.job.request()
	q.Begin()
	bc.Irecv(q, recv, source, backendTag(recvTag))
	if dest != ProcNull {
		if err := bc.Send(c.bound, send, dest, sendTag, backend.Standard); err != nil {
			bc.Cancel(q)
			if bc.Await(&backend.Bound{Timeout: grace}, q) == nil {
				k.job.requests.Put(q)
			}
			k.ended(t, err)
			return Status{}, c.failed("sendrecv", dest, sendTag, err)
		}
	}
	st, err := c.finish(q)
	k.ended(t, err)
	if err != nil {
		return status(st), c.failed("sendrecv", source, recvTag, err)
	}
	return status(st), nil
}

// imrecv receives a matched message.
func (c *Comm) imrecv(m backend.Matched, buf []byte) (backend.Status, error) {
	q := c.core.job.request()
	q.Begin()
	c.core.bc.Imrecv(q, m, buf)
	return c.finish(q)
}
