//go:build linux || darwin

package tcp

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/node"
)

// near is the link to a rank of the same node: rings in the memory of the node, and the socket beside them,
// which carries nothing and shows that the peer has ended.
type near struct {
	*memlink.Link
	sock     socket
	giveBack func() // gives the rings back; nil: they belong to the two ranks for good, or the engine may use them after Close

	check bool // the next Read looks whether the socket has ended, which takes as long as some tens of looks at the rings
	rest  [64]byte
}

// CheckEnd implements engine.EndChecker.
func (n *near) CheckEnd() {
	n.check = true
	n.Link.CheckEnd()
}

// Read implements engine.Link.
func (n *near) Read(a *frame.Arrival) (bool, error) {
	moved, err := n.Link.Read(a)
	if moved || err != nil {
		return moved, err
	}
	if n.check {
		n.check = false
		// After the end of the socket, Read still delivers the frames in the rings.
		if k, err := n.sock.read(n.rest[:], nil); k <= 0 && (err == nil || !again(err)) {
			n.Ended(err)
		}
	}
	return false, nil
}

// Limit implements engine.Link.
func (n *near) Limit(d time.Duration) { n.sock.Limit(d) }

// Finish implements engine.Link.
func (n *near) Finish(goodbye bool) {
	n.Link.Finish(goodbye)
	n.sock.finish()
}

// Close implements engine.Link.
func (n *near) Close() {
	n.sock.Close()
	if n.giveBack != nil {
		n.giveBack()
		n.giveBack = nil
	}
}

// Memory returns the link in memory, to which the engine refers from now on.
func (n *near) Memory() *memlink.Link {
	n.giveBack = nil
	return n.Link
}

// meet joins the ranks of this node that take part in shared memory. If that fails, all of them use sockets.
func (c *connecting) meet(ctx context.Context) error {
	c.local, c.why = make([]int, len(c.members)), make(map[int]string)
	cfg := node.Config{Job: c.cfg.Job, OnDemand: c.cfg.onDemand(), Data: c.ring, Check: c.cfg.Check}
	for r := range c.members {
		m := &c.members[r]
		if c.local[r] = -1; !m.Shares(c.self()) || m.Wake == "" || c.self().Wake == "" {
			continue
		}
		if c.local[r] = len(cfg.Ranks); r == c.id.Rank {
			cfg.Rank = c.local[r]
		}
		cfg.Ranks, cfg.PIDs = append(cfg.Ranks, r), append(cfg.PIDs, m.Process)
		c.sleep.wake.to = append(c.sleep.wake.to, unix.SockaddrUnix{Name: m.Wake})
	}
	if len(cfg.Ranks) < 2 {
		return nil
	}
	cfg.Name, cfg.Bell = c.cfg.Job+" "+c.sleep.wake.to[0].Name, c.sleep.wake.send
	n, err := node.Join(ctx, cfg)
	switch {
	case err == nil:
		n.Spare = c.spare
		c.node, c.sleep.node = n, n
	case ctx.Err() != nil:
		return err
	default:
		c.noNode = err.Error()
	}
	return nil
}

// rings returns this rank's end of the rings with another rank of the node, nil if there are none. If rings are
// made on demand, the rank that accepted the connection does it, and tells the other which.
func (c *connecting) rings(ctx context.Context, w *meet.Conn) (l *near, err error) {
	peer := c.local[w.Rank]
	if peer < 0 || c.node == nil {
		return nil, nil
	}
	var made struct {
		node.Offer
		Failed string // why there are none
	}
	if !c.cfg.onDemand() {
		l = &near{Link: c.node.Link(peer)}
	} else {
		if !w.Dialed {
			if made.Offer, err = c.node.NewPair(); err != nil {
				made.Failed = err.Error()
			}
		}
		err = w.Agree(ctx, &made)
		if err == nil && w.Dialed && made.Failed == "" {
			err = c.node.Take(made.Offer)
		}
		switch {
		case made.Failed != "": // there are no rings
		case err == nil:
			l = &near{Link: c.node.LinkAt(peer, made.Offer), giveBack: func() { c.node.GiveBack(made.Offer) }}
		case !w.Dialed:
			c.node.GiveBack(made.Offer)
		}
	}
	c.mu.Lock()
	c.why[w.Rank] = made.Failed
	c.mu.Unlock()
	return l, err
}
