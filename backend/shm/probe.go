package shm

import (
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// probing is a probe that waits for a matching message. The engine keeps it in probes, and looks
// whenever a message arrives or none can come any more.
type probing struct {
	c    *comm
	want match.Env
	take bool
	done atomic.Bool // set last
	msg  *msg
	st   backend.Status
	err  error
}

// Ready implements backend.Pending.
func (p *probing) Ready() bool { return p.done.Load() }

// look searches the queue and reports whether the probe has ended. The lock is held.
func (p *probing) look() bool {
	e := p.c.e
	for {
		n := e.arrived.FindArrived(p.want)
		if n == nil {
			if p.err = p.c.usable(); p.err == nil {
				p.err = e.cannotCome(p.c, p.want)
			}
			return p.err != nil
		}
		m := n.Owner.(*msg)
		if m.desc != nil && m.desc.state.Load() != descState(m.gen, descRTS) {
			e.arrived.Remove(n) // revoked by its sender
			e.putMsg(m)
			continue
		}
		p.msg, p.err = m, nil
		p.st = backend.Status{Source: p.c.RankOf(int(n.Env.Source)), Tag: int(n.Env.Tag), Bytes: m.size}
		if p.take {
			e.arrived.Remove(n)
		}
		return true
	}
}

// lookProbes lets the waiting probes look. The lock is held.
func (e *engine) lookProbes() {
	if len(e.probes) == 0 {
		return
	}
	e.probes = slices.DeleteFunc(e.probes, func(p *probing) bool {
		ended := p.look()
		if ended {
			p.done.Store(true)
		}
		return ended
	})
	e.wakeOthers()
}

// probe returns a probe that has ended, or nil if there is no message and block is false.
func (c *comm) probe(b *backend.Bound, source, tag int, block, take bool) (*probing, error) {
	e := c.e
	p := &probing{c: c, want: c.pattern(source, tag), take: take}
	e.mu.Lock()
	ended := p.look()
	if !ended || p.err != nil { // the rings may hold more
		e.progress()
		ended = p.look()
	}
	if !ended && block {
		e.probes = append(e.probes, p)
	}
	e.unlock()
	if ended || !block {
		if !ended {
			return nil, nil
		}
		return p, p.err
	}
	if err := c.Await(b, p); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i := slices.Index(e.probes, p); i >= 0 {
			e.probes = slices.Delete(e.probes, i, i+1)
			return nil, err
		}
	}
	return p, p.err
}

// Probe implements backend.Comm.
func (c *comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	p, err := c.probe(b, source, tag, block, false)
	if err != nil || p == nil {
		return backend.Status{}, false, err
	}
	return p.st, true, nil
}

// Mprobe implements backend.Comm.
func (c *comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	p, err := c.probe(b, source, tag, block, true)
	if err != nil || p == nil {
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
	if f := c.end.Load(); f != nil {
		e.finish(o, backend.Status{}, f)
	} else if !ok {
		e.finish(o, backend.Status{}, &backend.Fault{Sentinel: backend.ErrRequest, Text: "not a message of this backend"})
	} else if !e.takeMsg(o, got) {
		e.finish(o, backend.Status{}, &backend.Fault{Sentinel: backend.ErrCanceled, Text: "the sender has canceled the message"})
	}
	e.unlock()
}
