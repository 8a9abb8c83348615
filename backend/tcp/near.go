package tcp

import (
	"context"
	"fmt"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// near is the link to a rank of the same node: rings in the memory of the node, and the socket beside them,
// which carries nothing and shows that the peer has ended.
type near struct {
	*memlink.Link
	fd int

	looks uint32 // in vain
	check bool   // the socket may have ended
	rest  [64]byte
}

// socketEvery is after how many looks in vain the socket is asked, which takes as long as some tens of
// them.
const socketEvery = 512

// Read implements engine.Link.
func (n *near) Read(a *frame.Arrival) (bool, error) {
	moved, err := n.Link.Read(a)
	if moved || err != nil {
		return moved, err
	}
	if n.looks++; n.check || n.looks%socketEvery == 0 {
		n.check = false
		// After the end of the socket, Read still delivers the frames in the rings.
		if k, err := socket(n.fd).read(n.rest[:], nil); k <= 0 && (err == nil || !again(err)) {
			n.Ended(err)
		}
	}
	return false, nil
}

// Limit implements engine.Link.
func (n *near) Limit(d time.Duration) { sockLimit(n.fd, d) }

// Finish implements engine.Link.
func (n *near) Finish(goodbye bool) {
	n.Link.Finish(goodbye)
	sockFinish(n.fd)
}

// Close implements engine.Link.
func (n *near) Close() {
	if n.fd >= 0 {
		sockClose(n.fd)
		n.fd = -1
	}
}

// meet joins the ranks of this node that take part in shared memory. If that fails, all of them use sockets.
func (c *connecting) meet(ctx context.Context, sleep *sleeper) error {
	c.local, c.why = make([]int, len(c.members)), make(map[int]string)
	cfg := node.Config{Job: c.cfg.Job, OnDemand: c.cfg.onDemand(), Data: c.ring}
	var names []string
	for r := range c.members {
		m := &c.members[r]
		if c.local[r] = -1; !m.Shares(c.self()) || m.Wake == "" || c.self().Wake == "" {
			continue
		}
		if c.local[r] = len(cfg.Ranks); r == c.id.Rank {
			cfg.Rank = c.local[r]
		}
		cfg.Ranks, cfg.PIDs = append(cfg.Ranks, r), append(cfg.PIDs, m.Process)
		names = append(names, m.Wake)
	}
	if len(cfg.Ranks) < 2 {
		return nil
	}
	sleep.wake.peers(names)
	cfg.Name, cfg.Bell = c.cfg.Job+" "+names[0], sleep.wake.send
	n, err := node.Join(ctx, cfg)
	switch {
	case err == nil:
		n.Spare = c.spare
		c.node, sleep.node = n, n
	case ctx.Err() != nil:
		return err
	default:
		c.noNode = err.Error()
	}
	return nil
}

// rings returns this rank's end of the rings with another rank of the node, or why there are none. If rings
// are made on demand, the rank that accepted the connection does it, and tells the other which.
func (c *connecting) rings(ctx context.Context, w *wire.Conn) (l *memlink.Link, reason string, err error) {
	peer := c.local[w.Rank]
	switch {
	case peer < 0:
		return nil, "", nil
	case c.node == nil:
		return nil, c.noNode, nil
	case !c.cfg.onDemand():
		return c.node.Link(peer), "", nil
	}
	var made struct {
		Pair   int
		Failed string // why there are none
	}
	if !w.Dialed {
		if made.Pair, err = c.node.NewPair(); err != nil {
			reason, made.Failed = err.Error(), err.Error()
		}
		err = w.SendSettings(ctx, &made)
	} else if err = w.ReceiveSettings(ctx, &made); made.Failed != "" {
		reason = fmt.Sprintf("rank %d: %s", w.Rank, made.Failed)
	}
	if err == nil && reason == "" {
		l, err = c.node.LinkAt(peer, made.Pair)
	}
	return l, reason, err
}
