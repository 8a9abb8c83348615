package engine

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// probe is the wait of a probe for news.
type probe struct {
	e    *Engine
	seen uint32
}

// Ready implements backend.Pending.
func (p *probe) Ready() bool { return p.e.news.Load() != p.seen }

// wakeProbes lets the waiting probes look again. The lock is held.
func (e *Engine) wakeProbes() {
	if e.probes > 0 {
		e.news.Add(1)
		e.wakeReady()
	}
}

// find returns the first message that has arrived and that a pattern takes, nil if there is none. The error
// says why none can come any more. The lock is held.
func (c *comm) find(want match.Env) (*match.Node, error) {
	e := c.e
	for {
		n := e.arrived.FindArrived(want)
		if n == nil {
			if err := c.usable(); err != nil {
				return nil, err
			}
			return nil, c.cannotCome(want)
		}
		m := n.Owner.(*msg)
		if m.kind != msgExposed || e.peers[n.Env.Source].mem.Announced(m.token) {
			return n, nil
		}
		e.discard(m) // its sender has revoked it
	}
}

// probe returns the message that a probe finds; nil if there is none and block is false.
func (c *comm) probe(b *backend.Bound, source, tag int, block, take bool) (*msg, backend.Status, error) {
	e, want := c.e, c.pattern(source, tag)
	e.mu.Lock()
	defer e.mu.Unlock()
	// A message that has arrived may be withdrawn already, and one that has not may be on the way.
	e.progress()
	n, err := c.find(want)
	for n == nil && err == nil && block {
		p := probe{e, e.news.Load()}
		e.probes++
		e.mu.Unlock()
		err = c.Await(b, &p)
		e.mu.Lock()
		e.probes--
		if err == nil {
			n, err = c.find(want)
		}
	}
	if n == nil {
		return nil, backend.Status{}, err
	}
	m := n.Owner.(*msg)
	if take {
		e.arrived.Remove(n)
		if m.kind == msgRequested {
			e.held = append(e.held, m)
		}
	}
	return m, backend.Status{Source: c.RankOf(int(n.Env.Source)), Tag: int(n.Env.Tag), Bytes: m.size, Elems: n.Env.Elems}, nil
}

// Probe implements backend.Comm.
func (c *comm) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	m, st, err := c.probe(b, source, tag, block, false)
	return st, m != nil, err
}

// Mprobe implements backend.Comm.
func (c *comm) Mprobe(b *backend.Bound, source, tag int, block bool) (backend.Matched, backend.Status, bool, error) {
	m, st, err := c.probe(b, source, tag, block, true)
	if m == nil {
		return nil, st, false, err
	}
	return m, st, true, nil
}

// Imrecv implements backend.Comm.
func (c *comm) Imrecv(r *backend.Request, m backend.Matched, buf []byte) {
	e := c.e
	e.mu.Lock()
	o := c.begin(r)
	got := m.(*msg)
	o.buf, o.node.Env = buf, got.node.Env
	e.held = slices.DeleteFunc(e.held, func(h *msg) bool { return h == got })
	err := c.usable()
	switch f := e.fault.Load(); {
	case f != nil:
		e.finish(o, backend.Status{}, f)
	case err != nil && got.kind != msgEager:
		e.finish(o, backend.Status{}, err) // no rank would send the data
	case got.gone || !e.takeMsg(o, got):
		e.finish(o, backend.Status{}, backend.TookBack)
	}
	e.mu.Unlock()
}
