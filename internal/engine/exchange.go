package engine

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// A link to a socket can keep short frames back (Corker), so that several to one rank take one system call at each end.
//
//   - Collectives are schedules over messages. The two messages of a round of the check start under one lock, and the one
//     to be sent waits for the data that mostly follow it.
//   - A program that starts many messages to one rank: Isend keeps back those after the first (burstMin).
//
// Invariant: what is kept back is written when this rank looks at its links, and at the latest when uncorkLater has the
// token that Isend leaves in Engine.corked, or by the caller of Exchange.

// Exchange implements backend.Collectives.
func (c *comm) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	e := c.e
	e.mu.Lock()
	e.recv(c.begin(recv), in, c.pattern(source, tag))
	o := c.begin(send)
	if !e.cork(o, out, c.World[dest], int32(tag), 0) {
		e.send(o, out, c.World[dest], int32(tag), backend.Standard)
	}
	e.mu.Unlock() // Flush follows
}

// cork keeps a short message back. It reports false if it cannot; then the caller sends it.
func (e *Engine) cork(o *op, buf []byte, to int, tag int32, elems backend.Elems) bool {
	p := e.peers[to]
	if p == nil || p.first != nil || p.state.Over() || p.state.Link != membership.Up || p.broken != nil || o.comm.usable() != nil ||
		o.comm.gone[o.comm.RankOf(to)].Load() {
		return false
	}
	l, ok := p.link.(Corker)
	if !ok {
		return false
	}
	p.head = frame.Header{Kind: frame.Eager, Context: o.comm.id, Elems: uint16(elems), Tag: tag, Length: uint64(len(buf))}
	first := !p.link.Holds()
	if !l.Cork(&p.head, buf) {
		return false
	}
	if first {
		e.corks = append(e.corks, p)
	}
	e.finish(o, backend.Status{}, nil) // it is copied
	return true
}

// uncork sends what was kept back. The lock is held.
func (e *Engine) uncork() {
	for i, p := range e.corks {
		if p.first == nil && p.link != nil && p.link.Holds() {
			if p.flush(); p.link.Holds() {
				e.wakeLeader() // to look for room on the link
			}
		}
		e.corks[i] = nil
	}
	e.corks = e.corks[:0]
	e.uncorks++
}

// uncorkLater writes what Isend has kept back, if the program does not come back to the engine at once.
func (e *Engine) uncorkLater() {
	for {
		select {
		case <-e.stop:
			return
		case <-e.corked:
			e.writeKept()
		}
	}
}

// Flush implements backend.Collectives.
func (c *comm) Flush() { c.e.writeKept() }

func (e *Engine) writeKept() {
	e.mu.Lock()
	if len(e.corks) > 0 {
		e.uncork()
	}
	e.mu.Unlock()
}

// Diagnostics implements backend.Comm.
func (c *comm) Diagnostics() []string {
	e := c.e
	if e.cfg.Diagnostics == nil {
		return nil
	}
	e.mu.Lock()
	links, hub := 0, e.m.Hub
	for _, p := range e.open {
		if p.link != nil {
			links++
		}
	}
	e.mu.Unlock()
	return e.cfg.Diagnostics(links, hub)
}
