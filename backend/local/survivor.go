package local

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// loss is a lost rank, and the error with which its loss ends communicators.
type loss struct {
	rank int // everyRank: the job has ended
	end  *ending
}

const everyRank = -1

// ID implements agree.Comm.
func (c *Comm) ID() uint32 { return c.group.key.id }

// Ranks implements agree.Comm.
func (c *Comm) Ranks() int { return len(c.group.job.ranks) }

// Declare implements backend.Recovery.
func (c *Comm) Declare(rank int, why error) error {
	if f, ok := why.(*backend.Fault); !ok || f.Sentinel != backend.ErrPeerLost {
		why = backend.Faultf(backend.ErrPeerLost, "rank %d was declared lost: %v", rank, why)
	}
	c.group.job.fail(rank, why)
	return nil
}

// Abort implements backend.Comm.
func (c *Comm) Abort(code int) error {
	c.group.job.fail(everyRank, backend.Faultf(backend.ErrPeerLost, "rank %d aborted the job with code %d", c.me.id, code))
	return nil
}

// Failed implements agree.Comm.
func (c *Comm) Failed() (lost []int) {
	for i, r := range c.group.job.ranks {
		if r.lost.Load() != nil {
			lost = append(lost, i)
		}
	}
	return lost
}

// Left implements agree.Comm.
func (c *Comm) Left() (left []int) {
	j := c.group.job
	for i, r := range j.ranks {
		if r.lost.Load() == nil && j.world.ends[i].gone.Load() {
			left = append(left, i)
		}
	}
	return left
}

// Control implements agree.Comm.
func (c *Comm) Control(id uint32) (backend.Comm, error) {
	return c.derive(c.group.World, id, nil, c.group)
}

// Acknowledge implements agree.Comm.
func (c *Comm) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	return c.derive(c.group.Some(members), id, slices.Concat(c.group.acknowledged, lost), nil)
}

// acknowledges reports whether g goes on after the loss of a rank.
func (g *group) acknowledges(rank int) bool {
	return g.isControl && rank != everyRank || slices.Contains(g.acknowledged, rank)
}

// fail makes a rank lost, unless it is already, or ends all communicators.
func (j *job) fail(rank int, err error) {
	e := &ending{cause: err, later: err}
	j.mu.Lock()
	if rank != everyRank && !j.ranks[rank].lost.CompareAndSwap(nil, e) {
		j.mu.Unlock()
		return
	}
	j.losses = append(j.losses, loss{rank, e})
	groups := j.all()
	for _, g := range groups {
		if g.acknowledges(rank) {
			g.part(rank)
		} else {
			g.end.CompareAndSwap(nil, e) // a rank that closes it later has not left it first
		}
	}
	j.mu.Unlock()
	for _, g := range groups {
		g.sweep()
	}
	for _, r := range j.ranks {
		r.notify(nil) // what goroutines that panicked have left
	}
}
