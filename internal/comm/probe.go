package comm

import (
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
)

// Message is a message that Mprobe has taken out of the queue.
type Message struct {
	c     *Comm
	m     backend.Matched
	st    backend.Status
	taken atomic.Bool
}

// Probe looks for a message, and waits for one if block is set. If it is to take the message out of the
// queue, it returns the message too.
func (c *Comm) Probe(op string, source, tag int, block, take bool) (m *Message, st backend.Status, ok bool, err error) {
	if err := c.checkRecv(source, tag, nil); err != nil {
		return nil, st, false, c.Failed(op, source, tag, err)
	}
	var matched backend.Matched
	handle := c // the receive of the message has a time limit of its own
	if source == backend.ProcNull {
		st, ok = noStatus, true
	} else {
		k := c.core
		kind := flight.Probe
		if take {
			kind = flight.Mprobe
		}
		probe := func() error {
			if take {
				matched, st, ok, err = k.bc.Mprobe(c.bound, source, backendTag(tag), block)
			} else {
				st, ok, err = k.bc.Probe(c.bound, source, backendTag(tag), block)
			}
			return err
		}
		if block {
			c = c.withDeadline()
			err = k.traced(k.message(kind, backend.Blocking, 0, 0, tag, source), probe)
		} else {
			err = probe()
		}
	}
	if err != nil || !ok {
		return nil, backend.Status{}, false, c.Failed(op, source, tag, err)
	}
	if take {
		m = &Message{c: handle, m: matched, st: st}
	}
	return m, st, true, nil
}

// Recv receives the message. err is an error in the arguments.
func (m *Message) Recv(op string, typ *backend.Datatype, buf []byte, err error) (st backend.Status, _ error) {
	if err := m.reserve(op, err); err != nil {
		return st, err
	}
	if m.st.Source == backend.ProcNull {
		return noStatus, nil
	}
	c, k := m.c, m.c.core
	err = k.traced(k.message(flight.MessageRecv, backend.Blocking, len(buf), typ.ID, m.st.Tag, m.st.Source), func() (err error) {
		st, err = c.imrecv(m.m, typ, buf)
		return err
	})
	return st, c.Failed(op, m.st.Source, m.st.Tag, err)
}

// Irecv starts to receive the message. err is an error in the arguments.
func (m *Message) Irecv(op string, typ *backend.Datatype, buf []byte, err error) (*Request, error) {
	if err := m.reserve(op, err); err != nil {
		return nil, err
	}
	p := m.c.newPending(op, flight.MessageRecv, typ, len(buf), m.st.Source, m.st.Tag)
	if m.st.Source == backend.ProcNull {
		p.req.Complete(noStatus, nil)
	} else {
		m.c.core.bc.Imrecv(&p.req, m.m, buf)
	}
	return p.started(), nil
}

// reserve reserves m for the caller's receive.
func (m *Message) reserve(op string, err error) error {
	if m == nil {
		return (*Comm)(nil).failed(op, fault(backend.ErrRequest, "the message is nil"))
	}
	if err == nil {
		err = m.c.Usable()
	}
	if err == nil && m.taken.Swap(true) {
		err = fault(backend.ErrRequest, "the message has been received")
	}
	return m.c.Failed(op, m.st.Source, m.st.Tag, err)
}
