package local

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
	"github.com/cohort-hpc/cohort/internal/membership"
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
	if c.gone.Load() {
		return c.group.own(c.rank)
	}
	return nil
}

// Break implements backend.Comm.
func (c *Comm) Break(err error) {
	c.group.finish(&ending{cause: err, later: &backend.Broken{Cause: err}})
}

// Broken implements backend.Comm. No loss ends a control communicator, except for the lost rank.
func (c *Comm) Broken() error {
	e := c.group.end.Load()
	if e == nil && c.gone.Load() {
		_, e = c.group.job.fate(c.me.id)
	}
	if e != nil {
		return e.cause
	}
	return nil
}

// finish ends the communicator, unless it has ended, and all its operations.
func (g *group) finish(e *ending) {
	if g.end.CompareAndSwap(nil, e) {
		g.sweep()
	}
}

// sweep ends the operations that cannot complete any more, once the communicator has ended or a member has
// left it, and lets the goroutines that wait look again. No lock may be held.
func (g *group) sweep() {
	if g.end.Load() != nil {
		g.arrivals.stop(never)
	}
	var told []*op
	for i, w := range g.World {
		r := g.job.ranks[w]
		collect := func(q *match.Queue) {
			q.Each(func(n *match.Node) bool {
				o := owner(n)
				err := g.ended(o, i)
				if err == nil {
					return true
				}
				q.Remove(n)
				if o.copied {
					r.stored -= len(o.buf) // no operation waits for it
				} else if later := o.settle(backend.Status{}, err); later != nil {
					told = append(told, later)
				}
				return true
			})
		}
		r.lock()
		collect(&r.posted)
		collect(&r.arrived)
		collect(&r.held)
		r.mu.Unlock()
	}
	for _, o := range told {
		o.c.me.tell(o)
	}
	for _, w := range g.World {
		g.job.ranks[w].tell(nil)
	}
}

// ended returns why an operation of the group in a member's queues cannot complete, or nil.
func (g *group) ended(o *op, member int) error {
	env, sender := o.node.Env, member
	if o.send && env.Ctx == g.key.id {
		sender = g.RankOf(int(env.Source))
	}
	e := g.end.Load()
	switch gone := g.ends[member].gone.Load(); {
	case env.Ctx != g.key.id:
		return nil
	case e != nil:
		return e.later
	case gone && sender != member:
		return g.left(member)
	case gone:
		return g.own(member)
	case !o.send:
		return g.absence(g.absent(member, env), env)
	case !o.copied && g.ends[sender].gone.Load():
		return g.own(sender)
	}
	return nil
}

// own returns the error of the operations of a member that has closed the communicator, or is lost.
func (g *group) own(member int) error {
	if _, e := g.job.fate(g.World[member]); e != nil {
		return e.later
	}
	return &backend.Fault{Sentinel: backend.ErrClosed}
}

// left returns the error of operations that need a rank that has closed the
// communicator.
func (g *group) left(rank int) error {
	is, e := g.job.fate(g.World[rank])
	if e != nil {
		return e.later
	}
	if is == membership.Left {
		return backend.PeerLeft("rank %d has left the job", rank)
	}
	return backend.PeerLeft("rank %d has closed the communicator", rank)
}

// absent reports whether the source of a pattern of rank has closed the communicator, or all others have if it is any source.
func (g *group) absent(rank int, env match.Env) bool {
	gone := int(g.gone.Load())
	if gone > 0 && env.Source != backend.AnySource {
		return g.ends[g.RankOf(int(env.Source))].gone.Load()
	}
	return gone > 0 && gone == len(g.ends)-1 && !g.ends[rank].gone.Load()
}

// absence returns the error of a receive whose source was absent before the receive looked for its message, else nil.
func (g *group) absence(absent bool, env match.Env) error {
	switch {
	case !absent:
		return nil
	case env.Source != backend.AnySource:
		return g.left(g.RankOf(int(env.Source)))
	}
	return &backend.Fault{Sentinel: backend.ErrPeerLost, Text: "every other rank has left", Left: true}
}

// Close implements backend.Comm. A rank that closes a communicator is gone from its control communicator
// too. A rank that closes the first communicator has left the job, and is gone from all.
func (c *Comm) Close() error {
	g, j := c.group, c.group.job
	c.Recovery.Close()
	j.mu.Lock()
	groups := []*group{g}
	if g.key == worldKey {
		groups = j.all()
		j.peers[c.me.id].Leave()
	} else if control := j.groups[g.key.control()]; control != nil {
		groups = append(groups, control)
	}
	groups = slices.DeleteFunc(groups, func(g *group) bool { return !g.part(c.me.id) })
	j.mu.Unlock()
	for _, g := range groups {
		g.sweep()
	}
	return nil
}

// UnderWay implements backend.Comm.
func (c *Comm) UnderWay(f func(r *backend.Request, moves bool)) {
	for _, w := range c.group.World {
		r := c.group.job.ranks[w]
		r.lock()
		for _, q := range []*match.Queue{&r.posted, &r.arrived, &r.held} {
			q.Each(func(n *match.Node) bool {
				if o := owner(n); !o.copied && o.c == c && o.req != nil {
					f(o.req, o.send)
				}
				return true
			})
		}
		r.mu.Unlock()
	}
}

// part takes a rank out of the group, and reports whether it was in. The last one removes the group. j.mu is
// held; the caller sweeps the group afterwards.
func (g *group) part(world int) bool {
	i := g.RankOf(world)
	if i < 0 || !g.ends[i].gone.CompareAndSwap(false, true) {
		return false
	}
	if int(g.gone.Add(1)) == len(g.ends) {
		delete(g.job.groups, g.key)
	}
	return true
}
