package engine

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// This file implements agree.Comm, by which agree.Recovery implements backend.Recovery.

// ID implements agree.Comm.
func (c *comm) ID() uint32 { return c.id }

// Ranks implements agree.Comm.
func (c *comm) Ranks() int { return len(c.e.peers) }

// acknowledges reports whether the communicator goes on after the loss of a rank.
func (c *comm) acknowledges(world int) bool {
	return c.parent != nil || slices.Contains(c.acknowledged, world)
}

// Failed implements agree.Comm.
func (c *comm) Failed() []int {
	e := c.e
	return c.those(func(p *peer) bool {
		return p.state.Standing == membership.Lost || p.linkOver() && !p.state.Over() && !e.membership.Closed()
	})
}

// Left implements agree.Comm.
func (c *comm) Left() []int {
	return c.those(func(p *peer) bool { return p.state.Standing == membership.Left })
}

// those returns the other ranks of which something is true, once what has come from them is read.
func (c *comm) those(is func(*peer) bool) (ranks []int) {
	e := c.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.membership.Closed() {
		e.progress()
	}
	for r, p := range e.peers {
		if p != nil && is(p) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// Declare implements backend.Comm.
func (c *comm) Declare(rank int, why error) error {
	e := c.e
	f, ok := why.(*backend.Fault)
	if !ok || f.Sentinel != backend.ErrPeerLost { // the error of a loss names both ranks
		f = backend.Faultf(backend.ErrPeerLost, "rank %d was declared lost by rank %d: %v", rank, e.me, why)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.membership.Closed() || e.fault.Load() != nil:
	case rank == e.me:
		e.exclude(f)
	default:
		e.due = append(e.due, loss{rank, f})
		e.handleLosses()
	}
	return nil
}

// Control implements agree.Comm.
func (c *comm) Control(id uint32) (backend.Comm, error) {
	return c.e.newComm(&comm{Members: c.Members, id: id, rank: c.rank, parent: c})
}

// Acknowledge implements agree.Comm.
func (c *comm) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	world := c.Some(members)
	rank := slices.Index(world, c.e.me)
	if rank < 0 {
		return nil, &backend.Fault{Sentinel: backend.ErrRank, Text: "the caller is not a member"}
	}
	return c.e.newComm(&comm{Members: match.NewMembers(world), id: id, rank: rank, acknowledged: slices.Concat(c.acknowledged, lost)})
}
