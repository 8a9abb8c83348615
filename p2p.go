package cohort

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Send sends buf to dest and returns when buf can be used again. This may be before the message is
// received (MPI-4.1 section 3.4, standard mode).
//
// Local: the caller and dest take part; dest receives the message with [Recv] or another receive.
//
// Buffers: buf may be nil or empty.
//
// Errors: [ErrRank], [ErrTag] and [ErrType] for wrong arguments; [ErrPeerLost] if dest is lost or
// has closed c.
//
// Deadline: [ErrTimeout]. A message that has not matched is withdrawn. MPI cannot withdraw a send:
// on mpi the communicator is broken, and buf may still be in use.
func Send[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.send("send", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
}

// Ssend sends buf to dest and returns when a receive has matched the message (synchronous mode).
//
// Local: the caller and dest take part; dest receives the message with [Recv] or another receive.
//
// Buffers: buf may be nil or empty.
//
// Errors: as for [Send].
//
// Deadline: as for [Send].
func Ssend[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.send("ssend", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err)
}

// Isend starts a [Send] and returns without waiting.
//
// Local.
//
// Buffers: buf must not be written until the request is complete.
//
// Errors: those for wrong arguments come from the call, all others of [Send] from [Request.Wait].
//
// Deadline: Wait or Test ends the operation as [Send] does; see [Request.Wait].
func Isend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.isend("isend", typ, view.Bytes(buf), dest, tag, backend.Standard, err)
}

// Issend starts an [Ssend] and returns without waiting.
//
// Local.
//
// Buffers: buf must not be written until the request is complete.
//
// Errors: those for wrong arguments come from the call, all others of [Ssend] from [Request.Wait].
//
// Deadline: Wait or Test ends the operation as [Ssend] does; see [Request.Wait].
func Issend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.isend("issend", typ, view.Bytes(buf), dest, tag, backend.Synchronous, err)
}

// Recv receives a message with the given tag, or [AnyTag], from source, or [AnySource]. Messages
// from one rank with the same tag are received in the order in which they were sent.
//
// Local: the caller and source take part.
//
// Buffers: buf is at least as long as the message. Of a longer message it receives the beginning,
// and the error is [ErrTruncate]. Nothing is written past its end. MPICH may write less of it.
//
// Errors: [ErrRank], [ErrTag] and [ErrType] for wrong arguments; [ErrPeerLost] if source is lost or
// has closed c.
//
// Deadline: [ErrTimeout]. The receive is withdrawn, and the communicator stays usable.
func Recv[T any](c *Comm, buf []T, source, tag int) (Status, error) {
	typ, err := typeFor[T]()
	return c.recv("recv", typ, view.Bytes(buf), source, tag, err)
}

// Irecv starts a [Recv] and returns without waiting.
//
// Local.
//
// Buffers: as for [Recv]. buf must not be used until the request is complete.
//
// Errors: those for wrong arguments come from the call, all others of [Recv] from [Request.Wait].
// On local, shm and tcp a pending receive from [AnySource] ends with [ErrPeerLost] when all other
// ranks have closed c, although this rank could still send to itself.
//
// Deadline: Wait or Test ends the operation as [Recv] does; see [Request.Wait].
func Irecv[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return c.irecv("irecv", typ, view.Bytes(buf), source, tag, err)
}

// Sendrecv sends send to dest and receives recv from source at the same time, so that ranks that
// exchange messages cannot deadlock.
//
// Local: the caller, dest and source take part. [Recv] can receive the message, and [Send] can send
// the one received.
//
// Buffers: as for [Send] and [Recv]. Passing the same slice as send and recv works in place and
// costs a copy of the message; other overlaps are [ErrBuffer].
//
// Errors: those of [Send] and [Recv]; [ErrBuffer].
//
// Deadline: as for [Send] and [Recv].
func Sendrecv[T any](c *Comm, send []T, dest, sendTag int, recv []T, source, recvTag int) (Status, error) {
	typ, err := typeFor[T]()
	return c.sendrecv(typ, view.Bytes(send), dest, sendTag, view.Bytes(recv), source, recvTag, err)
}

// RecvAlloc receives a message of any length into a new slice.
//
// Local: the caller and source take part.
//
// Errors: those of [Recv]; [ErrCount] if the message is not a whole number of elements. That
// message is received and dropped.
//
// Deadline: [ErrTimeout]. No message is received, and the communicator stays usable.
func RecvAlloc[T any](c *Comm, source, tag int) ([]T, Status, error) {
	typ, err := typeFor[T]()
	err = c.checkRecv(source, tag, err)
	if err != nil {
		return nil, Status{}, c.failed("recvalloc", source, tag, err)
	}
	if source == ProcNull {
		return nil, noStatus, nil
	}
	k := c.core
	t := k.recorder.Begin(k.message(flight.RecvAlloc, backend.Blocking), 0, flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(source)), 0))
	m, st, _, err := k.bc.Mprobe(c.bound, source, backendTag(tag), true)
	k.ended(t, err)
	if err != nil {
		return nil, Status{}, c.failed("recvalloc", source, tag, err)
	}
	if st.Bytes%typ.Size != 0 {
		_, err := c.imrecv(m, make([]byte, st.Bytes))
		if err == nil {
			err = fault(ErrCount, fmt.Sprintf("the message has %d bytes, not a multiple of the element size %d", st.Bytes, typ.Size))
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

// checkSend checks the communicator and then the arguments of a send; err is the error that the
// typed function found in them.
func (c *Comm) checkSend(dest, tag int, err error) error {
	switch {
	case c == nil || c.core == nil || c.core.closed.Load():
		return c.open()
	case err != nil:
	case uint(dest) >= uint(c.core.size) && dest != ProcNull:
		err = c.badRank("destination", dest)
	case uint(tag) > c.core.maxTag:
		err = c.core.badTag(tag)
	default:
		return nil
	}
	return c.core.badArgument(err)
}

// checkRecv is checkSend for a receive or probe.
func (c *Comm) checkRecv(source, tag int, err error) error {
	switch {
	case c == nil || c.core == nil || c.core.closed.Load():
		return c.open()
	case err != nil:
	case uint(source) >= uint(c.core.size) && source != AnySource && source != ProcNull:
		err = c.badRank("source", source)
	case uint(tag) > c.core.maxTag && tag != AnyTag:
		err = c.core.badTag(tag)
	default:
		return nil
	}
	return c.core.badArgument(err)
}

// badArgument returns an argument error, or [ErrBroken] if the communicator is broken: that takes
// precedence, as it does for an operation with correct arguments.
func (k *core) badArgument(err error) error {
	if why := k.bc.Broken(); why != nil {
		return &backend.Broken{Cause: why}
	}
	return err
}

func (c *Comm) badRank(what string, rank int) error {
	return fault(ErrRank, fmt.Sprintf("%s is rank %d of %d; want 0 to %d", what, rank, c.core.size, c.core.size-1))
}

func (k *core) badTag(tag int) error {
	if uint(tag) <= MaxTag {
		caps := k.bc.Caps()
		return fault(ErrTag, fmt.Sprintf("tag %d is above %d, the largest tag of %s", tag, k.maxTag, cmp.Or(caps.Library, caps.Backend)))
	}
	return fault(ErrTag, fmt.Sprintf("tag %d; want 0 to %d", tag, k.maxTag))
}

// send is the blocking send; err is the error that the typed function found in its arguments.
func (c *Comm) send(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) error {
	err = c.checkSend(dest, tag, err)
	if err == nil && dest != ProcNull {
		k := c.core
		what := k.message(flight.Send+flight.Kind(mode), backend.Blocking)
		typed, place := flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(dest), 0)
		if mode == backend.Standard && len(buf) <= shortSend {
			t := k.recorder.BeginUntimed(what, uint64(len(buf)), typed, place)
			if err = k.bc.Send(c.bound, buf, dest, tag, mode); err == nil {
				k.recorder.EndTimed(t)
				return nil
			}
			k.ended(t, err)
		} else {
			t := k.recorder.BeginSparse(what, uint64(len(buf)), typed, place)
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
	err = c.checkRecv(source, tag, err)
	if err != nil {
		return Status{}, c.failed(op, source, tag, err)
	}
	if source == ProcNull {
		return noStatus, nil
	}
	k := c.core
	t := k.recorder.BeginSparse(k.message(flight.Recv, backend.Blocking), uint64(len(buf)), flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(source)), 0))
	st, err := k.bc.Recv(c.bound, buf, source, backendTag(tag))
	if err != nil {
		k.ended(t, err)
		return status(st), c.failed(op, source, tag, err)
	}
	k.recorder.End(t)
	return status(st), nil
}

// newRequest returns a request that has begun, and records it.
func (c *Comm) newRequest(op string, kind flight.Kind, typ *backend.Datatype, bytes, peer, tag int) *Request {
	k := c.core
	q := &Request{c: c, name: op, peer: peer, tag: tag, begun: c.now(), req: k.job.request()}
	q.ticket = k.recorder.BeginUntimed(k.message(kind, backend.Nonblocking), uint64(bytes), flight.Pair(typ.ID, uint32(tag)), flight.Pair(uint32(int32(peer)), 0))
	q.req.Begin()
	return q
}

// now returns the start time of an operation, or zero if it has no timeout.
func (c *Comm) now() time.Time {
	if c.bound == nil || c.bound.Timeout == 0 {
		return time.Time{}
	}
	return time.Now()
}

func (c *Comm) isend(op string, typ *backend.Datatype, buf []byte, dest, tag int, mode backend.Mode, err error) (*Request, error) {
	err = c.checkSend(dest, tag, err)
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
	err = c.checkRecv(source, tag, err)
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

// request returns a request from the pool, or a new one.
func (j *job) request() *backend.Request {
	if q, ok := j.requests.Get().(*backend.Request); ok {
		return q
	}
	return new(backend.Request)
}

// finish waits for a request of the job and returns it to the pool, unless it could not be ended.
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
	err = c.checkSend(dest, sendTag, err)
	if err != nil {
		return Status{}, c.failed("sendrecv", dest, sendTag, err)
	}
	same := view.Same(send, recv)
	if !same && view.Overlap(send, recv) {
		err = fault(ErrBuffer, "send and recv overlap and are not the same slice")
	}
	if err = c.checkRecv(source, recvTag, err); err != nil {
		return Status{}, c.failed("sendrecv", source, recvTag, err)
	}
	if source == ProcNull {
		return noStatus, c.send("sendrecv", typ, send, dest, sendTag, backend.Standard, nil)
	}
	k := c.core
	// The record has the receive's tag, and the destination in the field of a collective's number.
	t := k.recorder.BeginSparse(k.message(flight.Sendrecv, backend.Blocking), uint64(len(recv)), flight.Pair(typ.ID, uint32(recvTag)), flight.Pair(uint32(int32(source)), uint32(int32(dest))))
	var kept *[]byte
	if same && dest != ProcNull {
		// In place: the message received may arrive first, so the old content is sent from a copy.
		kept = copies.Get().(*[]byte)
		*kept = append((*kept)[:0], send...)
		send = *kept
	}
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
			return Status{}, c.failed("sendrecv", dest, sendTag, err) // dest may still read the copy
		}
		if kept != nil {
			copies.Put(kept)
		}
	}
	st, err := c.finish(q)
	k.ended(t, err)
	if err != nil {
		return status(st), c.failed("sendrecv", source, recvTag, err)
	}
	return status(st), nil
}

// copies holds memory for the messages of Sendrecv in place.
var copies = sync.Pool{New: func() any { return new([]byte) }}

// imrecv receives a matched message.
func (c *Comm) imrecv(m backend.Matched, buf []byte) (backend.Status, error) {
	q := c.core.job.request()
	q.Begin()
	c.core.bc.Imrecv(q, m, buf)
	return c.finish(q)
}
