package tensor

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Info describes a probed message.
type Info struct {
	Source, Tag int
	Type        backend.Kind // for example backend.Float32
	Shape       []int
}

// Message is a message that [Comm.Mprobe] or [Comm.Improbe] has taken out of the queue. Only
// [MessageRecv] can receive it, once.
type Message struct {
	c        *Comm
	envelope atomic.Pointer[envelope] // nil once received
}

// Mprobe waits for a message that [Recv] with the same source and tag would receive, takes it out of
// the queue, and describes it. From [cohort.ProcNull] it returns at once a message without type or
// shape.
//
// Not collective.
//
// Errors: [cohort.ErrRank], [cohort.ErrTag] for wrong arguments; [cohort.ErrClosed] for a closed
// communicator.
//
// Deadline: [cohort.ErrTimeout], as for [Recv].
func (c *Comm) Mprobe(source, tag int) (*Message, Info, error) {
	m, in, err := c.probe("mprobe", source, tag, true)
	return m, in, err
}

// Improbe is [Comm.Mprobe] without waiting. It returns false if no such message has arrived.
//
// Not collective.
//
// Errors: those of [Comm.Mprobe].
func (c *Comm) Improbe(source, tag int) (*Message, Info, bool, error) {
	m, in, err := c.probe("improbe", source, tag, false)
	return m, in, m != nil, err
}

// MessageRecv receives a message that [Comm.Mprobe] or [Comm.Improbe] has taken into t, which must
// have its type and shape. From [cohort.ProcNull] it leaves t as it was.
//
// Not collective: the sender takes part.
//
// Tensors: as for [Recv].
//
// Errors: [cohort.ErrRequest] for a nil message or one received before; those of [Recv]. After
// [cohort.ErrBuffer] the message can still be received.
//
// Deadline: that of the handle whose method took the message; as for [Recv].
func MessageRecv[T cohort.Number](m *Message, t *Tensor[T]) (cohort.Status, error) {
	p, err := t.untyped()
	return m.recv(p, err)
}

func (c *Comm) probe(op string, source, tag int, wait bool) (*Message, Info, error) {
	l, err := c.open(source, tag, wait)
	if err != nil {
		return nil, Info{}, c.opError(op, source, tag, err)
	}
	if l == nil {
		return nil, Info{}, nil
	}
	m := &Message{c: c}
	m.envelope.Store(l)
	return m, Info{Source: l.peer, Tag: l.tag, Type: l.kind, Shape: append([]int(nil), l.shape()...)}, nil
}

// open takes an envelope out of the library's queue. It returns nil if there is none.
func (c *Comm) open(source, tag int, wait bool) (*envelope, error) {
	m, err := c.messaging(nil)
	if err != nil {
		return nil, err
	}
	var taken *cohort.Message
	found := true
	if wait {
		taken, _, err = c.head.Mprobe(source, tag)
	} else {
		taken, _, found, err = c.head.Improbe(source, tag)
	}
	if err != nil || !found {
		return nil, err
	}
	l := new(envelope)
	st, err := cohort.MessageRecv(taken, l.b[:])
	if err == nil && st.Source != cohort.ProcNull {
		err = l.read(st.Bytes(), m.maxTag)
	}
	l.peer, l.tag = st.Source, st.Tag
	return l, err
}

func (m *Message) recv(p untyped, err error) (cohort.Status, error) {
	const op = "messagerecv"
	if m == nil {
		return cohort.Status{}, (*Comm)(nil).opError(op, cohort.Undefined, cohort.Undefined, fault(cohort.ErrRequest, "the message is nil"))
	}
	state, err := m.c.messaging(err)
	if err != nil {
		return cohort.Status{}, m.c.opError(op, cohort.Undefined, cohort.Undefined, err)
	}
	l := m.envelope.Swap(nil)
	if l == nil {
		return cohort.Status{}, m.c.opError(op, cohort.Undefined, cohort.Undefined, fault(cohort.ErrRequest, "the message was received before"))
	}
	source, tag := l.peer, l.tag
	if source == cohort.ProcNull {
		return cohort.NewStatus(source, tag, 0), nil
	}
	var st cohort.Status
	if err = state.begin(l, false); err == nil {
		st, err = m.c.accept(state, l, &p, nil)
	}
	if err != nil {
		err = m.c.opError(op, source, tag, err)
	}
	return st, err
}
