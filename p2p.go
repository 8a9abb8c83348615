package cohort

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Send sends buf to dest and returns when buf can be used again. This may be before the message is
// received (MPI-4.1 section 3.4, standard mode).
//
// Not collective: the caller and dest take part; dest receives the message with [Recv] or another receive.
//
// Buffers: buf may be nil or empty.
//
// Errors: [ErrRank], [ErrTag] and [ErrType] for wrong arguments; [ErrPeerLost] if dest is lost or
// has closed c.
//
// Deadline: [ErrTimeout]. A message that has not matched is withdrawn, and the communicator stays
// usable. A message that has matched gets 20 ms more. If it is still incomplete, the communicator
// is broken, and buf may still be in use. docs/errors.md says when. On mpi the deadline of any send
// breaks the communicator, because MPI cannot withdraw a send.
func Send[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.base().Send("send", typ, view.Bytes(buf), nil, dest, tag, backend.Standard, err)
}

// Ssend is [Send] in synchronous mode: it returns when a receive has matched the message.
//
// Not collective; errors, deadline: as for [Send].
func Ssend[T any](c *Comm, buf []T, dest, tag int) error {
	typ, err := typeFor[T]()
	return c.base().Send("ssend", typ, view.Bytes(buf), nil, dest, tag, backend.Synchronous, err)
}

// Isend is the nonblocking form of [Send]. buf must not be written until the request is complete.
func Isend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return request(c.base().Isend("isend", typ, view.Bytes(buf), nil, dest, tag, backend.Standard, err))
}

// Issend is the nonblocking form of [Ssend]. buf must not be written until the request is complete.
func Issend[T any](c *Comm, buf []T, dest, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return request(c.base().Isend("issend", typ, view.Bytes(buf), nil, dest, tag, backend.Synchronous, err))
}

// Recv receives a message with the given tag, or [AnyTag], from source, or [AnySource]. Messages
// from one rank with the same tag are received in the order in which they were sent.
//
// Not collective: the caller and source take part.
//
// Buffers: buf is at least as long as the message. Of a longer message it receives the beginning,
// and the error is [ErrTruncate]. Nothing is written past its end. MPICH may write less of it.
// If bytes are received that are not a whole number of elements, buf gets all of them, and [Count] is [Undefined].
//
// Errors: [ErrRank], [ErrTag] and [ErrType] for wrong arguments; [ErrPeerLost] if source is lost or
// has closed c. On local, shm and tcp, [ErrType] also if source has sent elements of another kind
// or size; the message is received. Bytes match every type, and so does an empty message.
//
// Deadline: [ErrTimeout]. A receive that has not matched is withdrawn, and the communicator stays
// usable. A message that has matched is treated as by [Send], and on mpi as docs/mpi.md says. On shm
// and tcp, [ErrCanceled] says that the sender's time was over, and that it has taken the message back.
func Recv[T any](c *Comm, buf []T, source, tag int) (Status, error) {
	typ, err := typeFor[T]()
	return status(c.base().Recv("recv", typ, view.Bytes(buf), nil, source, tag, err))
}

// Irecv is the nonblocking form of [Recv]. buf must not be used until the request is complete.
//
// On local, shm and tcp a pending receive from [AnySource] ends with [ErrPeerLost] when all other
// ranks have closed c, although this rank could still send to itself.
func Irecv[T any](c *Comm, buf []T, source, tag int) (*Request, error) {
	typ, err := typeFor[T]()
	return request(c.base().Irecv("irecv", typ, view.Bytes(buf), source, tag, err))
}

// Sendrecv sends send to dest and receives recv from source at the same time, so that ranks that
// exchange messages cannot deadlock.
//
// Not collective: the caller, dest and source take part. [Recv] can receive the message, and [Send] can send
// the one received.
//
// Buffers: as for [Send] and [Recv]. Passing the same slice as send and recv works in place and
// costs a copy of the message; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for [Send] and [Recv]; [ErrBuffer]. If the send fails, a receive that has not matched is
// withdrawn; one that has matched is completed first.
func Sendrecv[T any](c *Comm, send []T, dest, sendTag int, recv []T, source, recvTag int) (Status, error) {
	typ, err := typeFor[T]()
	return status(c.base().Sendrecv(typ, side(send, dest, sendTag), side(recv, source, recvTag), err))
}

// side returns a side of a Sendrecv.
func side[T any](buf []T, peer, tag int) comm.Side {
	return comm.Side{Buf: view.Bytes(buf), Peer: peer, Tag: tag}
}

// Isendrecv is the nonblocking form of [Sendrecv]. Neither buffer must be used until the request, which
// is that of both messages, is complete. Its status is that of the message received.
func Isendrecv[T any](c *Comm, send []T, dest, sendTag int, recv []T, source, recvTag int) (*Request, error) {
	typ, err := typeFor[T]()
	return request(c.base().Isendrecv(typ, side(send, dest, sendTag), side(recv, source, recvTag), err))
}

// RecvAppend receives a message of any length, and appends its elements to dst, which may be nil. It
// allocates if dst has no room for them.
//
// Not collective: the caller and source take part.
//
// Buffers: the result is what append(dst, message...) returns. After an error it is dst, and the room
// after dst's elements may have been written.
//
// Errors: those of [Recv]; [ErrCount] if the message is not a whole number of elements. That
// message is received and dropped.
//
// Deadline: as for [Recv].
func RecvAppend[T any](c *Comm, dst []T, source, tag int) ([]T, Status, error) {
	typ, err := typeFor[T]()
	all := dst
	st, err := status(c.base().RecvAppend(typ, source, tag, err, func(n int) []byte {
		all = extend(dst, n)
		return view.Bytes(all[len(dst):])
	}))
	if err != nil {
		return dst, st, err
	}
	return all, st, nil
}

// extend appends n elements to s, of any value.
func extend[T any](s []T, n int) []T { return slices.Grow(s, n)[:len(s)+n] }

// Probe waits until there is a message that [Recv] with the same source and tag would receive, and
// returns its status. Another goroutine may receive the message first; [Comm.Mprobe] prevents that.
//
// Not collective.
//
// Errors: [ErrRank] and [ErrTag] for wrong arguments; [ErrPeerLost] if source is lost or has closed
// c.
//
// Deadline: [ErrTimeout]. The communicator stays usable.
func (c *Comm) Probe(source, tag int) (Status, error) {
	_, st, _, err := c.base().Probe("probe", source, tag, true, false)
	return status(st, err)
}

// Iprobe is [Comm.Probe] without waiting. It returns false if there is no such message now.
//
// Not collective; errors: as for [Comm.Probe].
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	_, st, ok, err := c.base().Probe("iprobe", source, tag, false, false)
	return fromBackend(st), ok, err
}

// Message is a message that [Comm.Mprobe] or [Comm.Improbe] has taken out of the queue. Only
// [MessageRecv] or [ImessageRecv] can receive it, once. That receive ends with the context of the handle
// that took the message: take it on a handle whose context lasts until it is received. A message that is
// not received is treated like one that was not taken.
type Message comm.Message

// Mprobe waits for a message as [Comm.Probe] does and takes it out of the queue, so that no other
// receive can match it.
//
// Not collective.
//
// Errors: as for [Comm.Probe].
//
// Deadline: [ErrTimeout]. No message is taken, and the communicator stays usable.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	m, st, _, err := c.base().Probe("mprobe", source, tag, true, true)
	return (*Message)(m), fromBackend(st), err
}

// Improbe is [Comm.Mprobe] without waiting. It returns false if there is no such message now.
//
// Not collective; errors: as for [Comm.Probe].
func (c *Comm) Improbe(source, tag int) (*Message, Status, bool, error) {
	m, st, ok, err := c.base().Probe("improbe", source, tag, false, true)
	return (*Message)(m), fromBackend(st), ok, err
}

// MessageRecv receives a message that [Comm.Mprobe] or [Comm.Improbe] has taken.
//
// Not collective.
//
// Buffers: as for [Recv].
//
// Errors: [ErrRequest] for a nil message or one received before; [ErrTruncate], [ErrType];
// [ErrCanceled] if the sender has withdrawn the message.
//
// Deadline: as for a [Recv] that has matched. The message cannot be received again.
func MessageRecv[T any](m *Message, buf []T) (Status, error) {
	typ, err := typeFor[T]()
	return status((*comm.Message)(m).Recv("messagerecv", typ, view.Bytes(buf), err))
}

// ImessageRecv is the nonblocking form of [MessageRecv]. buf must not be used until the request is
// complete.
func ImessageRecv[T any](m *Message, buf []T) (*Request, error) {
	typ, err := typeFor[T]()
	return request((*comm.Message)(m).Irecv("imessagerecv", typ, view.Bytes(buf), err))
}
