package engine

import (
	"errors"
	"sync/atomic"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/board"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/match"
)

// comm is one communicator of this rank.
type comm struct {
	match.Members

	e            *Engine
	id           uint32
	rank         int
	isWorld      bool
	parent       *comm // of a control communicator, which no loss ends; a rank that has closed parent does not use it
	acknowledged []int // world ranks whose loss is acknowledged

	fault  atomic.Pointer[backend.Fault] // the loss that has ended it, or what has ended all
	brk    atomic.Pointer[backend.Fault]
	closed atomic.Bool
	gone   []atomic.Bool // ranks that have closed it

	native  *board.Collective // nil: its collectives are schedules
	waiting *backend.Call     // the native call in which this rank waits for the others

	agree.Recovery
}

// newComm registers a communicator whose members, id, and rank are set. If the job has ended for this rank, or no
// arrival slots are left, it returns an error, after it has closed the communicator: the others may have made it.
func (e *Engine) newComm(c *comm) (backend.Comm, error) {
	c.e, c.Of = e, c
	c.gone = make([]atomic.Bool, len(c.World))
	e.mu.Lock()
	e.progress() // notices about it may have arrived
	err := e.openSlots(c)
	if f := e.fault.Load(); f != nil { // the memory for slots may be gone
		err = f
	}
	for _, r := range e.membership.LostList {
		if !c.acknowledges(r) {
			c.lose(e.losses[r])
		}
	}
	e.comms[c.id] = c
	e.catchUp(c)
	e.dropForeign(c)
	e.mu.Unlock()
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// local returns a rank's place in Board, -1 if it has none.
func (e *Engine) local(world int) int {
	if p := &e.cfg.Peers[world]; e.cfg.Board != nil && p.Node == e.cfg.Peers[e.me].Node {
		return p.Local
	}
	return -1
}

// openSlots gives a communicator arrival slots if all its ranks are on this node. If none are free it first
// reads all that has arrived: the others may have closed communicators that this rank has closed.
func (e *Engine) openSlots(c *comm) (err error) {
	local := make([]int, len(c.World))
	for r, w := range c.World {
		if local[r] = e.local(w); local[r] < 0 || c.parent != nil {
			return nil
		}
	}
	for range 8 {
		if c.native, err = e.cfg.Board.Open(c, c.id, local); err == nil {
			return nil
		}
		e.progress()
	}
	return err
}

var errForeign = errors.New("a message to a communicator of which it is not a member")

// envelope returns the envelope of the message that a frame announces.
func (p *peer) envelope(h *frame.Header) match.Env {
	return match.Env{Ctx: h.Context, Source: int32(p.rank), Tag: h.Tag, Elems: backend.Elems(h.Elems)}
}

// match returns the posted receive that gets a message from the peer. If there is none, keep reports whether
// the message is kept.
func (p *peer) match(env match.Env) (o *op, keep bool, err error) {
	e := p.e
	if n := e.posted.FindPosted(env); n != nil {
		o = n.Owner.(*op)
		if n.Env.Source == backend.AnySource && o.comm.RankOf(p.rank) < 0 {
			return nil, false, errForeign
		}
		return o, false, nil
	}
	keep = e.retains(env.Ctx)
	if c := e.comms[env.Ctx]; keep && c != nil && c.RankOf(p.rank) < 0 {
		keep, err = false, errForeign
	}
	return nil, keep, err
}

// Rank implements backend.Comm.
func (c *comm) Rank() int { return c.rank }

// NodeOf implements backend.Comm: a node is the lowest of the ranks that can share memory.
func (c *comm) NodeOf(rank int) int { return c.e.cfg.Peers[c.World[rank]].Node }

// HostOf implements backend.Comm.
func (c *comm) HostOf(rank int) string { return c.e.cfg.Peers[c.World[rank]].Host }

// Caps implements backend.Comm.
func (c *comm) Caps() backend.Caps {
	caps := c.e.cfg.Caps
	if c.e.cfg.Spare { // otherwise ranks take turns
		caps.Pieces = EagerMax + 1
	}
	return caps
}

// pattern is what a receive looks for.
func (c *comm) pattern(source, tag int) match.Env { return c.Pattern(c.id, source, tag) }

// usable returns why no operation can begin, nil normally.
func (c *comm) usable() error { return c.over(false) }

// over returns why the operations of the communicator end, nil normally. Those of collectives end with the
// error with which it was broken, the others with ErrBroken.
func (c *comm) over(collective bool) error {
	if f := c.fault.Load(); f != nil && f != c.brk.Load() {
		return f
	}
	if f := c.brk.Load(); f != nil {
		if collective {
			return f
		}
		return &backend.Broken{Cause: f}
	}
	if c.closed.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed, Text: "the communicator was closed"}
	}
	return nil
}

// Derive implements backend.Comm.
func (c *comm) Derive(_ *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	return c.Acknowledge(members, id, nil)
}
