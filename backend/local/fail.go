package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/match"
)

// ending is why a communicator cannot be used any more.
type ending struct {
	cause error // what it was ended with, and what the collective in progress returns
	later error // what all other operations return
}

func faultf(sentinel error, format string, args ...any) error {
	return &backend.Fault{Sentinel: sentinel, Text: fmt.Sprintf(format, args...)}
}

// note adds what the operation was doing to an error of a Bound.
func note(err error, what string) error {
	var f *backend.Fault
	if errors.As(err, &f) {
		return &backend.Fault{Sentinel: f.Sentinel, Text: f.Text + ": " + what}
	}
	return fmt.Errorf("%w: %s", err, what)
}

// unusable returns why no operation of c can begin, or nil. Operations call it under
// the lock of the queue that they are going to use. A communicator is marked as ended
// before its queues are cleared, so no operation stays behind.
func (c *Comm) unusable() error {
	if e := c.group.end.Load(); e != nil {
		return e.later
	}
	if c.closed.Load() {
		return &backend.Fault{Sentinel: backend.ErrClosed}
	}
	if c.group.isControl {
		if e := c.me.lost.Load(); e != nil {
			return e.later
		}
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
	for i := range g.slots {
		g.slots[i].wake()
	}
	for _, w := range g.world {
		r := g.job.ranks[w]
		r.sweep(true, func(_ *op, env match.Env) error {
			if env.Ctx != g.key.id {
				return nil
			}
			return e.later
		})
		r.sleepers.wake(false) // blocked probes
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
			if o.send && q == &r.arrived {
				g := o.c.group
				g.asked(n, int(g.index[r.id]))
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
	if e := g.job.ranks[g.world[rank]].lost.Load(); e != nil {
		return e.later
	}
	if g.key == (groupKey{}) {
		return faultf(backend.ErrPeerLost, "rank %d has left the job", rank)
	}
	return faultf(backend.ErrPeerLost, "rank %d has closed the communicator", rank)
}

// absent returns the error of a receive of rank from a source that has closed
// the communicator, or from any if all others have.
func (g *group) absent(rank, source int) error {
	switch gone := int(g.gone.Load()); {
	case gone == 0:
		return nil
	case source != backend.AnySource:
		if g.slots[source].gone.Load() {
			return g.left(source)
		}
	case gone == len(g.slots)-1 && !g.slots[rank].gone.Load():
		return faultf(backend.ErrPeerLost, "every other rank has left")
	}
	return nil
}

// Close implements backend.Comm. Closing the first communicator closes the
// rank's others too.
func (c *Comm) Close() error {
	if c.group.key != (groupKey{}) {
		c.close()
		return nil
	}
	c.me.commsMu.Lock()
	comms := slices.Clone(c.me.comms)
	c.me.commsMu.Unlock()
	for _, d := range comms {
		if d != c {
			d.close()
		}
	}
	c.close()
	return nil
}

// close ends c's own operations, and those of the other ranks that need it.
func (c *Comm) close() {
	if !c.closed.CompareAndSwap(false, true) {
		return
	}
	c.recovery.Close()
	g, me, j := c.group, c.me, c.group.job
	if j.harmed.Load() {
		j.mu.Lock()
		e := j.verdict(g)
		j.mu.Unlock()
		if e != nil {
			g.finish(e) // the others get this error, not that this rank then left
		}
	}
	me.commsMu.Lock()
	me.comms = slices.DeleteFunc(me.comms, func(d *Comm) bool { return d == c })
	me.commsMu.Unlock()
	g.part(c.rank, &backend.Fault{Sentinel: backend.ErrClosed})
	j.mu.Lock()
	control := g.control
	j.mu.Unlock()
	if control != nil {
		control.part(c.rank, &backend.Fault{Sentinel: backend.ErrClosed})
	}
}

// part takes a member out of the group. Its operations end with own, and those of the
// others that need it with the error of left. The last member removes the group.
func (g *group) part(member int, own error) {
	j, me := g.job, g.job.ranks[g.world[member]]
	if g.slots[member].gone.CompareAndSwap(false, true) && int(g.gone.Add(1)) == len(g.slots) {
		j.mu.Lock()
		delete(j.groups, g.key)
		j.mu.Unlock()
	}
	if g.end.Load() != nil {
		return
	}
	lost := g.left(member)
	g.slots[member].wake() // another goroutine of the rank may be waiting in a round
	me.sweep(true, func(o *op, env match.Env) error {
		switch {
		case env.Ctx != g.key.id:
			return nil
		case o.send:
			return lost
		}
		return own
	})
	me.sleepers.wake(false) // blocked probes
	for i, w := range g.world {
		if w == me.id {
			continue
		}
		r, alone := j.ranks[w], g.absent(i, backend.AnySource)
		r.sweep(false, func(o *op, env match.Env) error {
			switch {
			case env.Ctx != g.key.id || o.copied:
			case o.send && env.Source == me.id:
				return own
			case !o.send && env.Source == me.id:
				return lost
			case !o.send && env.Source == backend.AnySource:
				return alone
			}
			return nil
		})
		if r.probing.Load() > 0 {
			r.sleepers.wake(false)
		}
		g.slots[i].wake() // it may be waiting for the member to arrive
	}
}

// rankList lists ranks for a message: "rank 3", "ranks 1, 2, 5 and 40 more".
func rankList(ranks []int) string {
	const most = 8
	if len(ranks) == 1 {
		return fmt.Sprintf("rank %d", ranks[0])
	}
	var s strings.Builder
	s.WriteString("ranks ")
	for i, r := range ranks {
		switch {
		case i == most:
			fmt.Fprintf(&s, " and %d more", len(ranks)-most)
			return s.String()
		case i > 0:
			s.WriteString(", ")
		}
		fmt.Fprint(&s, r)
	}
	return s.String()
}
