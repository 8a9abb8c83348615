package local

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// loss is a lost rank, and the error with which its loss ends communicators.
type loss struct {
	rank int32
	end  *ending
}

// ID implements agree.Comm.
func (c *Comm) ID() uint32 { return c.group.key.id }

// Ranks implements agree.Comm.
func (c *Comm) Ranks() int { return len(c.group.job.ranks) }

// Declare implements backend.Recovery.
func (c *Comm) Declare(rank int, why error) error {
	if f, ok := why.(*backend.Fault); !ok || f.Sentinel != backend.ErrPeerLost {
		why = faultf(backend.ErrPeerLost, "rank %d was declared lost: %v", rank, why)
	}
	c.group.job.lose(int32(rank), why)
	return nil
}

// Agree implements backend.Recovery.
func (c *Comm) Agree(b *backend.Bound, flag int) (int, error) { return c.recovery.Agree(c, b, flag) }

// Shrink implements backend.Recovery.
func (c *Comm) Shrink(b *backend.Bound, ids backend.Claimer) (backend.Comm, uint32, error) {
	return c.recovery.Shrink(c, b, ids)
}

// Revoke implements backend.Recovery.
func (c *Comm) Revoke(err error) error {
	c.Break(err)
	return nil
}

// Abort implements backend.Comm.
func (c *Comm) Abort(code int) error {
	c.group.job.abort(faultf(backend.ErrPeerLost, "rank %d aborted the job with code %d", c.me.id, code))
	return nil
}

// Lost implements backend.Recovery.
func (c *Comm) Lost() []int {
	lost := append(c.Failed(), c.Left()...)
	slices.Sort(lost)
	return lost
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
		if r.lost.Load() == nil && j.world.slots[i].gone.Load() {
			left = append(left, i)
		}
	}
	return left
}

// Control implements agree.Comm.
func (c *Comm) Control(id uint32) (backend.Comm, error) {
	members := make([]int, len(c.group.world))
	for i := range members {
		members[i] = i
	}
	return c.derive(members, id, nil, c.group)
}

// Acknowledge implements agree.Comm.
func (c *Comm) Acknowledge(members []int, id uint32, lost []int) (backend.Comm, error) {
	acknowledged := slices.Clone(c.group.acknowledged)
	for _, w := range lost {
		acknowledged = append(acknowledged, int32(w))
	}
	return c.derive(members, id, acknowledged, nil)
}

// verdict returns what ends a group, or nil. j.mu is held.
func (j *job) verdict(g *group) *ending {
	if j.ended != nil {
		return j.ended
	}
	for _, l := range j.losses {
		if !g.acknowledges(l.rank) {
			return l.end
		}
	}
	return nil
}

// acknowledges reports whether g goes on after the loss of a rank.
func (g *group) acknowledges(rank int32) bool {
	return g.isControl || slices.Contains(g.acknowledged, rank)
}

// lose makes a rank lost, unless it is already.
func (j *job) lose(rank int32, err error) {
	e := &ending{cause: err, later: err}
	j.mu.Lock() // groups made from here on see it
	if j.ranks[rank].lost.Load() != nil {
		j.mu.Unlock()
		return
	}
	j.ranks[rank].lost.Store(e)
	j.losses = append(j.losses, loss{rank, e})
	j.harmed.Store(true)
	groups := j.list()
	j.mu.Unlock()
	for _, g := range groups {
		member := g.index[rank]
		switch {
		case !g.acknowledges(rank):
			g.finish(e)
		case member >= 0:
			g.part(int(member), err)
		}
	}
	j.resume()
}

// abort ends all communicators, unless they have been ended before.
func (j *job) abort(err error) {
	e := &ending{cause: err, later: err}
	j.mu.Lock()
	if j.ended != nil {
		j.mu.Unlock()
		return
	}
	j.ended = e
	j.harmed.Store(true)
	groups := j.list()
	j.mu.Unlock()
	for _, g := range groups {
		g.finish(e)
	}
	j.resume()
}

// list returns the groups there are. j.mu is held.
func (j *job) list() []*group {
	groups := make([]*group, 0, len(j.groups))
	for _, g := range j.groups {
		groups = append(groups, g)
	}
	return groups
}

// resume runs the notifications that goroutines which panicked have left.
func (j *job) resume() {
	for _, r := range j.ranks {
		r.notices.resume(r)
	}
}
