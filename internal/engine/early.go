package engine

import (
	"maps"
	"slices"

	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/match"
)

// Messages and notices may arrive for a communicator that this rank has not made yet. They wait for it, messages in
// arrived and notices in early.
//
// Invariant: messages and notices wait for every communicator that this rank may still make, and for no other. It may
// make one whose id is settled or larger, the control communicator of that one, and those of open communicators.
//
// All members claim an id before one of them makes the communicator. So early has at most two ids for each id that this
// rank has claimed since the oldest agreement under way began, and one for each open communicator.

// retains reports whether what arrives for a communicator is kept: this rank has not closed it, and has made it or may
// still make it.
func (e *Engine) retains(id uint32) bool {
	c := e.comms[id]
	if c == nil {
		id &^= agree.ControlID
		c = e.comms[id] // a rank that has closed it makes no control communicator any more
	}
	if c == nil {
		return id >= e.settled
	}
	return !c.closed.Load()
}

// forsake drops what is kept no more.
func (e *Engine) forsake() {
	maps.DeleteFunc(e.early, func(id uint32, _ []func()) bool { return !e.retains(id) })
	e.held = slices.DeleteFunc(e.held, func(m *msg) bool { return !e.retains(m.node.Env.Ctx) })
	id, keep := uint32(0), e.retains(0) // mostly the next message is of the same one
	e.arrived.Each(func(n *match.Node) bool {
		if n.Env.Ctx != id {
			id, keep = n.Env.Ctx, e.retains(n.Env.Ctx)
		}
		if !keep {
			e.discard(n.Owner.(*msg))
		}
		return true
	})
}

// Settled implements backend.Comm.
func (c *comm) Settled(below uint32) {
	e := c.e
	e.mu.Lock()
	e.settled = max(e.settled, below)
	e.forsake()
	e.mu.Unlock()
}

// catchUp applies the notices that came before the communicator was made.
func (e *Engine) catchUp(c *comm) {
	notices := e.early[c.id]
	delete(e.early, c.id)
	for _, apply := range notices {
		apply()
	}
}

// dropForeign gives up the ranks that have sent to a communicator before it was made here, and are no
// members of it.
func (e *Engine) dropForeign(c *comm) {
	e.arrived.Each(func(n *match.Node) bool {
		if from := int(n.Env.Source); n.Env.Ctx == c.id && c.RankOf(from) < 0 {
			e.discard(n.Owner.(*msg))
			e.peers[from].sentInvalid(errForeign)
		}
		return true
	})
	if e.lossesPending() {
		e.handleLosses()
	}
}
