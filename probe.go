package cohort

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Probe waits until there is a message that [Recv] with the same source and tag would receive, and
// returns its status. Another goroutine may receive the message first; [Comm.Mprobe] prevents that.
//
// Local.
//
// Errors: [ErrRank] and [ErrTag] for wrong arguments; [ErrPeerLost] if source is lost or has closed
// c.
//
// Deadline: [ErrTimeout]. The communicator stays usable.
func (c *Comm) Probe(source, tag int) (Status, error) {
	st, _, err := c.probe("probe", source, tag, true)
	return st, err
}

// Iprobe is [Comm.Probe] without waiting. It returns false if there is no such message now.
//
// Local.
//
// Errors: as for [Comm.Probe].
func (c *Comm) Iprobe(source, tag int) (Status, bool, error) {
	return c.probe("iprobe", source, tag, false)
}

func (c *Comm) probe(op string, source, tag int, block bool) (Status, bool, error) {
	err := c.checkRecv(source, tag, nil)
	if err == nil && source == ProcNull {
		return noStatus, true, nil
	}
	var st backend.Status
	ok := false
	if err == nil {
		t := c.beginProbe(flight.Probe, source, tag, block)
		st, ok, err = c.core.bc.Probe(c.bound, source, backendTag(tag), block)
		c.endProbe(t, err)
	}
	if err != nil {
		return Status{}, false, c.failed(op, source, tag, err)
	}
	if !ok {
		return Status{}, false, nil
	}
	return status(st), true, nil
}

// beginProbe records a probe if it waits.
func (c *Comm) beginProbe(kind flight.Kind, source, tag int, block bool) flight.Ticket {
	if !block {
		return 0
	}
	k := c.core
	return k.recorder.Begin(k.message(kind, backend.Blocking), 0, flight.Pair(0, uint32(tag)), flight.Pair(uint32(int32(source)), 0))
}

func (c *Comm) endProbe(t flight.Ticket, err error) {
	if t != 0 {
		c.core.ended(t, err)
	}
}

// Message is a message that [Comm.Mprobe] or [Comm.Improbe] has taken out of the queue. Only
// [MessageRecv] or [ImessageRecv] can receive it, once.
type Message struct {
	c     *Comm
	m     backend.Matched
	st    Status
	taken atomic.Bool
}

// Mprobe waits for a message as [Comm.Probe] does and takes it out of the queue, so that no other
// receive can match it.
//
// Local.
//
// Errors: as for [Comm.Probe].
//
// Deadline: [ErrTimeout]. No message is taken, and the communicator stays usable.
func (c *Comm) Mprobe(source, tag int) (*Message, Status, error) {
	m, st, _, err := c.mprobe("mprobe", source, tag, true)
	return m, st, err
}

// Improbe is [Comm.Mprobe] without waiting. It returns false if there is no such message now.
//
// Local.
//
// Errors: as for [Comm.Probe].
func (c *Comm) Improbe(source, tag int) (*Message, Status, bool, error) {
	return c.mprobe("improbe", source, tag, false)
}

func (c *Comm) mprobe(op string, source, tag int, block bool) (*Message, Status, bool, error) {
	err := c.checkRecv(source, tag, nil)
	if err == nil && source == ProcNull {
		return &Message{c: c, st: noStatus}, noStatus, true, nil
	}
	var m backend.Matched
	var st backend.Status
	ok := false
	if err == nil {
		t := c.beginProbe(flight.Mprobe, source, tag, block)
		m, st, ok, err = c.core.bc.Mprobe(c.bound, source, backendTag(tag), block)
		c.endProbe(t, err)
	}
	if err != nil {
		return nil, Status{}, false, c.failed(op, source, tag, err)
	}
	if !ok {
		return nil, Status{}, false, nil
	}
	return &Message{c: c, m: m, st: status(st)}, status(st), true, nil
}

// MessageRecv receives a message that [Comm.Mprobe] or [Comm.Improbe] has taken.
//
// Local.
//
// Buffers: as for [Recv].
//
// Errors: [ErrRequest] for a nil message or one received before; [ErrTruncate], [ErrType];
// [ErrCanceled] if the sender has withdrawn the message.
//
// Deadline: [ErrTimeout]. The message cannot be received again, and buf may still be in use.
func MessageRecv[T any](m *Message, buf []T) (Status, error) {
	typ, err := typeFor[T]()
	if err := m.take("messagerecv", err); err != nil {
		return Status{}, err
	}
	if m.st.Source == ProcNull {
		return noStatus, nil
	}
	k, b := m.c.core, view.Bytes(buf)
	t := k.recorder.Begin(k.message(flight.MessageRecv, backend.Blocking), uint64(len(b)), flight.Pair(typ.ID, uint32(m.st.Tag)), flight.Pair(uint32(m.st.Source), 0))
	st, err := m.c.imrecv(m.m, b)
	k.ended(t, err)
	if err != nil {
		return status(st), m.c.failed("messagerecv", m.st.Source, m.st.Tag, err)
	}
	return status(st), nil
}

// ImessageRecv starts a [MessageRecv] and returns without waiting.
//
// Local.
//
// Buffers: as for [Recv]. buf must not be used until the request is complete.
//
// Errors: [ErrRequest] and [ErrType] come from the call, all others of [MessageRecv] from
// [Request.Wait].
//
// Deadline: Wait or Test ends the operation as [MessageRecv] ends; see [Request.Wait].
func ImessageRecv[T any](m *Message, buf []T) (*Request, error) {
	typ, err := typeFor[T]()
	if err := m.take("imessagerecv", err); err != nil {
		return nil, err
	}
	q := m.c.newRequest("imessagerecv", flight.MessageRecv, typ, len(view.Bytes(buf)), m.st.Source, m.st.Tag)
	if m.st.Source == ProcNull {
		q.req.Complete(backend.Status{Source: ProcNull, Tag: AnyTag}, nil)
	} else {
		m.c.core.bc.Imrecv(q.req, m.m, view.Bytes(buf))
	}
	return q, nil
}

// take reserves m for the caller's receive.
func (m *Message) take(op string, err error) error {
	if m == nil {
		return &OpError{Op: op, Rank: Undefined, Peer: Undefined, Tag: Undefined, Err: fault(ErrRequest, "the message is nil")}
	}
	if err == nil {
		err = m.c.open()
	}
	if err == nil && m.taken.Swap(true) {
		err = fault(ErrRequest, "the message has been received")
	}
	if err != nil {
		return m.c.failed(op, m.st.Source, m.st.Tag, err)
	}
	return nil
}
