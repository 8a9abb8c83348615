package engine

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// Collectives are schedules over messages. The engine adds two things. The two messages of a round of the
// check start under one lock. And the message to be sent waits for the data that mostly follow it, where
// the link can keep it back (Corker), so that two frames to one rank take one system call at each end.

// Exchange implements backend.Collectives.
func (c *comm) Exchange(recv, send *backend.Request, in, out []byte, source, dest, tag int) {
	e := c.e
	e.mu.Lock()
	e.recv(c.begin(recv), in, c.pattern(source, tag))
	o := c.begin(send)
	if !e.cork(o, out, c.World[dest], int32(tag)) {
		e.send(o, out, c.World[dest], int32(tag), backend.Standard)
	}
	e.mu.Unlock() // Flush follows
}

// cork keeps a short message back. It reports false if it cannot; then the caller sends it.
func (e *Engine) cork(o *op, buf []byte, to int, tag int32) bool {
	p := e.peers[to]
	if p == nil || p.first != nil || p.state.Over() || p.state.Link != membership.Up || p.writeErr != nil || o.comm.usable() != nil ||
		o.comm.gone[o.comm.RankOf(to)].Load() {
		return false
	}
	l, ok := p.link.(Corker)
	if !ok {
		return false
	}
	p.head = frame.Header{Kind: frame.Eager, Context: o.comm.id, Tag: tag, Length: uint64(len(buf))}
	if !l.Cork(&p.head, buf) {
		return false
	}
	e.corks = append(e.corks, p)
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

// Flush implements backend.Collectives.
func (c *comm) Flush() {
	e := c.e
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
	links, hub := 0, e.membership.Hub
	for _, p := range e.open {
		if p.link != nil {
			links++
		}
	}
	e.mu.Unlock()
	return e.cfg.Diagnostics(links, hub)
}
