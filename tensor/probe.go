package tensor

import (
	"context"
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// Info describes a probed message.
type Info struct {
	Source, Tag int
	Type        backend.Kind // for example backend.Float32
	Shape       []int
}

// Probe waits for a message that [Recv] with the same source and tag would receive, and describes
// it. Another goroutine may still receive it first. From [cohort.ProcNull] it returns at once,
// without type or shape.
//
// Not collective.
//
// Errors: [cohort.ErrRank], [cohort.ErrTag] for wrong arguments; [cohort.ErrClosed] for a closed
// communicator.
//
// Deadline: [cohort.ErrTimeout].
func (c *Comm) Probe(source, tag int) (Info, error) {
	in, _, err := c.probe("probe", source, tag, true)
	return in, err
}

// Iprobe is [Comm.Probe] without waiting. It returns false if no such message has arrived.
//
// Not collective.
//
// Errors: those of [Comm.Probe].
func (c *Comm) Iprobe(source, tag int) (Info, bool, error) {
	return c.probe("iprobe", source, tag, false)
}

// prober is a probe that waits.
type prober struct {
	source, tag int
	wake        context.CancelFunc
}

func (c *Comm) probe(op string, source, tag int, block bool) (in Info, ok bool, err error) {
	m, err := c.messaging(nil)
	for err == nil {
		if in, ok, err = c.look(m, source, tag); ok || err != nil || !block {
			break
		}
		err = c.wait(m, source, tag)
	}
	if err != nil {
		return Info{}, false, c.opError(op, source, tag, err)
	}
	return in, ok, nil
}

// look returns the first message that matches.
func (c *Comm) look(m *messages, source, tag int) (Info, bool, error) {
	for {
		m.mu.Lock()
		if i := m.find(source, tag); i >= 0 {
			in := m.probed[i].info()
			m.mu.Unlock()
			return in, true, nil
		}
		closed := m.closed
		m.mu.Unlock()
		if closed {
			return Info{}, false, errClosed()
		}
		st, ok, err := c.head.Iprobe(source, tag)
		if err != nil || !ok {
			return Info{}, false, err
		}
		if source == cohort.ProcNull {
			return Info{Source: st.Source, Tag: st.Tag}, true, nil
		}
		if err = c.open(m, st.Source, st.Tag); err != nil {
			return Info{}, false, err
		}
		runtime.Gosched() // let a receive that is about to take the message do so
	}
}

// open takes an envelope out of the library's queue, unless a blocking receive is about to take it.
func (c *Comm) open(m *messages, source, tag int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.ContainsFunc(m.blocking, func(l *envelope) bool { return l.covers(source, tag) }) {
		return nil
	}
	message, _, ok, err := m.k.head.Improbe(source, tag)
	if err != nil || !ok {
		return err
	}
	l := newEnvelope()
	st, err := cohort.MessageRecv(message, l.b[:])
	if err != nil {
		return err
	}
	if err = l.read(st.Bytes(), m.maxTag); err != nil {
		return err
	}
	l.source, l.tag = st.Source, st.Tag
	m.probed = append(m.probed, l)
	for _, p := range m.probers {
		if covers(p.source, p.tag, source, tag) {
			p.wake()
		}
	}
	return nil
}

// wait returns when a message may have come: to the library, or to another probe that matches it.
func (c *Comm) wait(m *messages, source, tag int) error {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	p := &prober{source, tag, cancel}
	m.mu.Lock()
	if m.find(source, tag) >= 0 {
		m.mu.Unlock()
		return nil
	}
	m.probers = append(m.probers, p)
	m.mu.Unlock()
	_, err := m.k.head.WithContext(ctx).Probe(source, tag)
	m.mu.Lock()
	m.probers = slices.DeleteFunc(m.probers, func(o *prober) bool { return o == p })
	m.mu.Unlock()
	if ctx.Err() != nil && c.ctx.Err() == nil {
		return nil // woken
	}
	return err
}

// info returns the contents of an envelope.
func (l *envelope) info() Info {
	return Info{Source: l.source, Tag: l.tag, Type: l.kind, Shape: slices.Clone(l.shape())}
}
