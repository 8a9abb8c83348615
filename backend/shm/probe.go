package shm

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// probing waits until a message that a pattern takes has arrived.
type probing struct {
	c    *comm
	want match.Env
	take bool
	msg  *msg
	st   backend.Status
	err  error
	done bool
}

// Ready implements backend.Pending.
func (p *probing) Ready() bool {
	if p.done {
		return true
	}
	e := p.c.e
	if !e.mu.TryLock() {
		return false
	}
	defer e.mu.Unlock()
	p.look()
	return p.done
}

// look searches the queue. The lock is held.
func (p *probing) look() {
	e := p.c.e
	for !p.done {
		n := e.arrived.FindArrived(p.want)
		if n == nil {
			if err := p.c.usable(); err != nil {
				p.done, p.err = true, err
			} else if err := e.cannotCome(p.c, p.want); err != nil {
				p.done, p.err = true, err
			}
			return
		}
		m := n.Owner.(*msg)
		if m.desc != nil && m.desc.state.Load() != descState(m.gen, descOffered) {
			e.arrived.Remove(n) // taken back by its sender
			e.putMsg(m)
			continue
		}
		p.done, p.msg = true, m
		p.st = backend.Status{Source: p.c.rankOf(int(n.Env.Source)), Tag: int(n.Env.Tag), Bytes: m.size}
		if p.take {
			e.arrived.Remove(n)
		}
	}
}

func (c *comm) probe(b *backend.Bound, source, tag int, block, take bool) (*probing, error) {
	if err := c.usable(); err != nil {
		return nil, err
	}
	p := &probing{c: c, want: c.pattern(source, tag), take: take}
	c.e.mu.Lock()
	p.look()
	if !p.done || p.err != nil { // the rings may hold more
		p.done, p.err = false, nil
		c.e.progress()
		p.look()
	}
	c.e.unlock()
	if !p.done && block {
		if err := c.Await(b, p); err != nil {
			return nil, err
		}
	}
	return p, p.err
}

// Probe implements backend.Comm.
func (c *comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	p, err := c.probe(b, source, tag, block, false)
	if err != nil || !p.done {
		return backend.Status{}, false, err
	}
	return p.st, true, nil
}

// Mprobe implements backend.Comm.
func (c *comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	p, err := c.probe(b, source, tag, block, true)
	if err != nil || !p.done {
		return nil, backend.Status{}, false, err
	}
	return p.msg, p.st, true, nil
}

// Imrecv implements backend.Comm.
func (c *comm) Imrecv(r *backend.Request, m backend.Matched, buf []byte) {
	e := c.e
	e.mu.Lock()
	o := e.getOp()
	o.comm, o.req, o.buf = c, r, buf
	r.Impl = o
	got, ok := m.(*msg)
	if !ok {
		e.finish(o, backend.Status{}, &backend.Fault{Sentinel: backend.ErrRequest, Text: "not a message of this backend"})
	} else if !e.takeMsg(o, got) {
		e.finish(o, backend.Status{}, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the sender took the message back"})
	}
	e.unlock()
}
