package local

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/membership"
)

// ID implements agree.Comm.
func (c *Comm) ID() uint32 { return c.group.key.id }

// Ranks implements agree.Comm.
func (c *Comm) Ranks() int { return len(c.group.job.ranks) }

// Declare implements backend.Comm.
func (c *Comm) Declare(rank int, why error) error {
	if f, ok := why.(*backend.Fault); !ok || f.Sentinel != backend.ErrPeerLost {
		why = backend.Faultf(backend.ErrPeerLost, "rank %d was declared lost: %v", rank, why)
	}
	c.group.job.fail(rank, why)
	return nil
}

// Abort implements backend.Comm.
func (c *Comm) Abort(code int) error {
	c.group.job.fail(c.Ranks(), backend.Faultf(backend.ErrPeerLost, "rank %d aborted the job with code %d", c.me.id, code))
	return nil
}

// Failed implements agree.Comm.
func (c *Comm) Failed() []int { return c.group.job.those(membership.Lost) }

// Left implements agree.Comm.
func (c *Comm) Left() []int { return c.group.job.those(membership.Left) }

// those returns the world ranks of a standing.
func (j *job) those(s membership.Standing) (ranks []int) {
	for i := range j.ranks {
		if is, _ := j.fate(i); is == s {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

// Control implements agree.Comm.
func (c *Comm) Control(id uint32) (backend.Comm, error) {
	return c.derive(c.group.World, id, nil)
}

// Acknowledge implements agree.Comm.
func (c *Comm) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	return c.derive(c.group.Some(members), id, slices.Concat(c.group.acknowledged, lost))
}

// isControl reports whether g is a control communicator.
func (g *group) isControl() bool { return g.key.id&agree.ControlID != 0 }

// acknowledges reports whether g goes on after the loss of a rank.
func (g *group) acknowledges(rank int) bool {
	return g.isControl() && rank < len(g.job.ranks) || slices.Contains(g.acknowledged, rank)
}

// fail makes a rank lost, unless it has left or is lost already. Rank len(ranks) stands for all: the job ends.
func (j *job) fail(rank int, err error) {
	j.mu.Lock()
	p := &j.peers[rank]
	if !p.Lose(membership.ThisRank) {
		j.mu.Unlock()
		return
	}
	p.end = &ending{cause: err, later: err}
	groups := j.all()
	for _, g := range groups {
		if !g.acknowledges(rank) {
			g.end.CompareAndSwap(nil, p.end) // before: a reader of gone finds the reason
		}
		g.part(rank)
	}
	j.mu.Unlock()
	for _, g := range groups {
		g.sweep()
	}
}
