package cohort

import (
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

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
// Not collective.
//
// Errors: as for [Comm.Probe].
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	_, st, ok, err := c.base().Probe("iprobe", source, tag, false, false)
	return fromBackend(st), ok, err
}

// Message is a message that [Comm.Mprobe] or [Comm.Improbe] has taken out of the queue. Only
// [MessageRecv] or [ImessageRecv] can receive it, once.
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
// Not collective.
//
// Errors: as for [Comm.Probe].
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
// Deadline: [ErrTimeout]. The message cannot be received again, and buf may still be in use.
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
