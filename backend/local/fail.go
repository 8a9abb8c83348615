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
	if e := c.ending(); e != nil {
		return e.later
	}
	if c.gone.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed}
	}
	return nil
}

// ending returns why the communicator has ended for this rank, or nil. No loss ends a control communicator,
// except for the lost rank.
func (c *Comm) ending() *ending {
	e := c.group.end.Load()
	if e == nil && c.group.isControl {
		e = c.me.lost.Load()
	}
	return e
}

// Break implements backend.Comm.
func (c *Comm) Break(err error) {
	c.group.finish(&ending{cause: err, later: &backend.Broken{Cause: err}})
}

// Broken implements backend.Comm.
func (c *Comm) Broken() error {
	if e := c.ending(); e != nil {
		return e.cause
	}
	return nil
}

// finish ends the communicator, unless it has ended, and all its operations.
func (g *group) finish(e *ending) {
	if g.end.CompareAndSwap(nil, e) {
		g.arrivals.stop()
		g.sweep()
	}
}

// sweep ends the operations that cannot complete any more, once the communicator has ended or a member has
// left it, and lets the goroutines that wait look again.
func (g *group) sweep() {
	for i, w := range g.World {
		r := g.job.ranks[w]
		var list *op
		collect := func(q *match.Queue) {
			q.Each(func(n *match.Node) bool {
				o := owner(n)
				err := g.ended(o, i, q == &r.held)
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
		collect(&r.held)
		r.mu.Unlock()
		for list != nil {
			o := list
			list, o.next = o.next, nil
			o.complete(backend.Status{}, o.err)
		}
		r.sleepers.wake() // blocked probes
		g.ends[i].wake()
	}
}

// ended returns why an operation of the group in a member's queues cannot complete, or nil. A message that the
// member holds can be received though its sender has left.
func (g *group) ended(o *op, member int, held bool) error {
	env := o.node.Env
	e, source := g.end.Load(), backend.AnySource
	if env.Source != backend.AnySource {
		source = g.RankOf(int(env.Source))
	}
	switch gone := g.ends[member].gone.Load(); {
	case env.Ctx != g.key.id:
		return nil
	case e != nil:
		return e.later
	case gone && o.send:
		return g.left(member)
	case gone:
		return g.own(member)
	case !o.send:
		return g.absent(member, source)
	case !o.copied && !held && g.ends[source].gone.Load():
		return g.own(source)
	}
	return nil
}

// own returns the error of the operations of a member that has closed the communicator, or is lost.
func (g *group) own(member int) error {
	if e := g.job.ranks[g.World[member]].lost.Load(); e != nil {
		return e.later
	}
	return &backend.Fault{Sentinel: backend.ErrClosed}
}

// left returns the error of operations that need a rank that has closed the
// communicator.
func (g *group) left(rank int) error {
	if e := g.job.ranks[g.World[rank]].lost.Load(); e != nil {
		return e.later
	}
	if g.key == (groupKey{}) {
		return backend.PeerLeft("rank %d has left the job", rank)
	}
	return backend.PeerLeft("rank %d has closed the communicator", rank)
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
	g.part(c.rank)
	if control != nil {
		control.part(c.rank)
	}
}

// part takes a member out of the group, and ends the operations that need it. The last member removes the
// group.
func (g *group) part(member int) {
	j := g.job
	if g.ends[member].gone.CompareAndSwap(false, true) && int(g.gone.Add(1)) == len(g.ends) {
		j.mu.Lock()
		delete(j.groups, g.key)
		j.mu.Unlock()
	}
	if g.end.Load() == nil {
		g.sweep()
	}
}
