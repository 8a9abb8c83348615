package local

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// ending is why a communicator cannot be used any more.
type ending struct {
	cause error // what it was ended with, and what the collective in progress returns
	later error // what all other operations return
}

// unusable returns why no operation of c can begin, or nil. Operations call it under
// the lock of the queue that they are going to use. A communicator is marked as ended
// before its queues are cleared, so no operation stays behind.
func (c *Comm) unusable() error {
	if e := c.group.end.Load(); e != nil {
		return e.later
	}
	if e := c.me.lost.Load(); e != nil && c.group.isControl {
		return e.later
	}
	if c.gone.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed}
	}
	return nil
}

// Break implements backend.Comm.
func (c *Comm) Break(err error) {
	c.group.finish(&ending{cause: err, later: &backend.Broken{Cause: err}})
}

// Broken implements backend.Comm.
func (c *Comm) Broken() error {
	if e := c.group.end.Load(); e != nil {
		return e.cause
	}
	if e := c.me.lost.Load(); e != nil && c.group.isControl {
		return e.cause
	}
	return nil
}

// finish ends the communicator, unless it has ended, and all its operations.
func (g *group) finish(e *ending) {
	if !g.end.CompareAndSwap(nil, e) {
		return
	}
	g.arrivals.stop()
	for i, w := range g.World {
		g.ends[i].wake()
		r := g.job.ranks[w]
		r.sweep(true, func(_ *op, env match.Env) error {
			if env.Ctx != g.key.id {
				return nil
			}
			return e.later
		})
		r.sleepers.wake() // blocked probes
	}
}

// sweep ends the operations in r's queues that verdict has an error for. Messages
// held by Mprobe are swept only if asked to.
func (r *rank) sweep(held bool, verdict func(o *op, env match.Env) error) {
	var list *op
	collect := func(q *match.Queue) {
		q.Each(func(n *match.Node) bool {
			o := owner(n)
			err := verdict(o, n.Env)
			if err == nil {
				return true
			}
			q.Remove(n)
			if o.copied {
				r.stored -= len(o.buf) // no operation waits for it
				return true
			}
			o.err, o.next, list = err, list, o
			return true
		})
	}
	r.mu.Lock()
	collect(&r.posted)
	collect(&r.arrived)
	if held {
		collect(&r.held)
	}
	r.mu.Unlock()
	for list != nil {
		o := list
		list, o.next = o.next, nil
		o.complete(backend.Status{}, o.err)
	}
}

// left returns the error of operations that need a rank that has closed the
// communicator.
func (g *group) left(rank int) error {
	if e := g.job.ranks[g.World[rank]].lost.Load(); e != nil {
		return e.later
	}
	if g.key == (groupKey{}) {
		return backend.Faultf(backend.ErrPeerLost, "rank %d has left the job", rank)
	}
	return backend.Faultf(backend.ErrPeerLost, "rank %d has closed the communicator", rank)
}

// absent returns the error of a receive of rank from a source that has closed
// the communicator, or from any if all others have.
func (g *group) absent(rank, source int) error {
	switch gone := int(g.gone.Load()); {
	case gone == 0:
		return nil
	case source != backend.AnySource:
		if g.ends[source].gone.Load() {
			return g.left(source)
		}
	case gone == len(g.ends)-1 && !g.ends[rank].gone.Load():
		return backend.Faultf(backend.ErrPeerLost, "every other rank has left")
	}
	return nil
}

// Close implements backend.Comm. Closing the first communicator closes the
// rank's others too.
func (c *Comm) Close() error {
	if j := c.group.job; c.group == j.world {
		for _, d := range j.endsOf(c.me.id) {
			if d != c {
				d.close()
			}
		}
	}
	c.close()
	return nil
}

// endsOf returns the ends that a rank has made of the groups there are.
func (j *job) endsOf(rank int) (ends []*Comm) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range j.groups {
		if i := g.RankOf(rank); i >= 0 && g.ends[i].group != nil {
			ends = append(ends, &g.ends[i])
		}
	}
	return ends
}

// close ends c's own operations, and those of the other ranks that need it.
func (c *Comm) close() {
	if c.gone.Load() {
		return
	}
	c.Recovery.Close()
	g, j := c.group, c.group.job
	j.mu.Lock()
	e, control := j.verdict(g), g.control
	j.mu.Unlock()
	if e != nil {
		g.finish(e) // the others get this error, not that this rank then left
	}
	g.part(c.rank, &backend.Fault{Sentinel: backend.ErrClosed})
	if control != nil {
		control.part(c.rank, &backend.Fault{Sentinel: backend.ErrClosed})
	}
}

// part takes a member out of the group. Its operations end with own, and those of the
// others that need it with the error of left. The last member removes the group.
func (g *group) part(member int, own error) {
	j, me := g.job, g.job.ranks[g.World[member]]
	if g.ends[member].gone.CompareAndSwap(false, true) && int(g.gone.Add(1)) == len(g.ends) {
		j.mu.Lock()
		delete(j.groups, g.key)
		j.mu.Unlock()
	}
	if g.end.Load() != nil {
		return
	}
	lost := g.left(member)
	g.ends[member].wake() // another goroutine of the rank may be waiting in a round
	me.sweep(true, func(o *op, env match.Env) error {
		switch {
		case env.Ctx != g.key.id:
			return nil
		case o.send:
			return lost
		}
		return own
	})
	me.sleepers.wake() // blocked probes
	for i, w := range g.World {
		if i == member {
			continue
		}
		r, alone := j.ranks[w], g.absent(i, backend.AnySource)
		r.sweep(false, func(o *op, env match.Env) error {
			switch {
			case env.Ctx != g.key.id || o.copied:
			case o.send && int(env.Source) == me.id:
				return own
			case !o.send && int(env.Source) == me.id:
				return lost
			case !o.send && env.Source == backend.AnySource:
				return alone
			}
			return nil
		})
		if r.probing.Load() > 0 {
			r.sleepers.wake()
		}
		g.ends[i].wake() // it may be waiting for the member to arrive
	}
}
