package engine

import (
	"slices"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// probing waits until a message that a pattern takes has arrived. The engine
// keeps it in probes meanwhile, and looks whenever a message arrives or none can
// come any more.
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

// look searches the queue and reports whether the probe is over. The lock is held.
func (p *probing) look() bool {
	e := p.c.e
	var n *match.Node
	for {
		if n = e.arrived.FindArrived(p.want); n == nil {
			if p.err = p.c.usable(); p.err == nil {
				p.err = p.c.cannotCome(p.want)
			}
			return p.err != nil
		}
		m := n.Owner.(*msg)
		if m.kind != msgExposed || e.peers[n.Env.Source].mem.Announced(m.token) {
			break
		}
		e.arrived.Remove(n) // its sender has revoked it
		e.putMsg(m)
	}
	m := n.Owner.(*msg)
	p.msg, p.err = m, nil
	p.st = backend.Status{Source: p.c.RankOf(int(n.Env.Source)), Tag: int(n.Env.Tag), Bytes: m.size}
	if p.take {
		e.arrived.Remove(n)
		if m.kind == msgRequested {
			e.held = append(e.held, m)
		}
	}
	return true
}

// lookProbes lets the waiting probes look. The lock is held.
func (e *Engine) lookProbes() {
	if len(e.probes) == 0 {
		return
	}
	e.probes = slices.DeleteFunc(e.probes, func(p *probing) bool {
		over := p.look()
		if over {
			p.done.Store(true)
		}
		return over
	})
	e.wakeOthers()
}

// probe returns a probe that is over, or nil if there is no message and block is
// false.
func (c *comm) probe(b *backend.Bound, source, tag int, block, take bool) (*probing, error) {
	e := c.e
	p := &probing{c: c, want: c.pattern(source, tag), take: take}
	e.mu.Lock()
	// A message that has arrived may be withdrawn already, and one that has not may be on the way.
	e.progress()
	over := p.look()
	if !over && block {
		e.probes = append(e.probes, p)
	}
	e.unlock()
	if over || !block {
		if !over {
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
	o.fixed = true
	if ok {
		o.node.Env = got.node.Env
	}
	if ok && got.token != 0 {
		if i := slices.Index(e.held, got); i >= 0 {
			e.held = slices.Delete(e.held, i, i+1)
		}
	}
	switch f := e.fault.Load(); {
	case f != nil:
		e.finish(o, backend.Status{}, f)
	case !ok:
		e.finish(o, backend.Status{}, &backend.Fault{Sentinel: backend.ErrRequest, Text: "not a message of this backend"})
	case got.gone:
		e.finish(o, backend.Status{}, tookBack())
	default:
		if err := c.usable(); err != nil && got.token != 0 {
			e.finish(o, backend.Status{}, err) // no rank would send the data
			break
		}
		e.takeMsg(o, got)
	}
	e.unlock()
}
