//go:build linux || darwin

package tcp

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/node"
)

// connecting is a rank that makes its connections to the others.
type connecting struct {
	cfg     Config
	id      *meet.Identity
	accepts meet.Identity // id, of the listener
	invited *invitation   // nil: the settings name the coordinator
	l       *meet.Listener
	sleep   *sleeper
	members []meet.Member
	spare   bool // every rank of this node has a processor to itself
	ring    int  // length of a data ring of shared memory; 0: chosen

	local  []int      // place on this node, by rank; -1: of another node, or without shared memory
	node   *node.Node // nil: no shared memory
	noNode string     // why

	mu  sync.Mutex
	why map[int]string // why the connection to a rank of this node has no rings; "" if it has
}

// self describes this rank.
func (c *connecting) self() *meet.Member { return &c.members[c.id.Rank] }

// all makes the connections of the start, by rank. Of two ranks the higher one dials.
func (c *connecting) all(ctx context.Context) ([]engine.Link, error) {
	ctx, fail := context.WithCancelCause(ctx) // the first error ends what is still under way
	defer fail(nil)
	above, below := len(c.members)-1-c.id.Rank, c.id.Rank
	if c.cfg.onDemand() { // only those with rank 0
		if c.id.Rank > 0 {
			above = 0
		}
		below = min(below, 1)
	}
	var mu sync.Mutex // guards links
	links := make([]engine.Link, len(c.members))
	take := func(w *meet.Conn) {
		l, err := c.ready(ctx, w)
		if err != nil {
			fail(err)
			return
		}
		mu.Lock()
		second := links[w.Rank]
		links[w.Rank] = l
		mu.Unlock()
		if second != nil {
			second.Close()
			fail(fmt.Errorf("a second connection to rank %d", w.Rank))
		}
	}
	var makers sync.WaitGroup
	makers.Go(func() {
		for range above {
			w, err := c.l.Accept(ctx)
			if err != nil {
				fail(err)
				return
			}
			makers.Go(func() { take(w) })
		}
	})
	for r := 0; r < below && ctx.Err() == nil; r++ {
		w, err := meet.Dial(ctx, c.id.Toward(&c.members[r]), c.members[r].Addrs, r, meet.Peer)
		if err != nil {
			fail(fmt.Errorf("connecting to %v: %w", &c.members[r], err))
			break
		}
		take(w)
	}
	makers.Wait()
	if err := backend.Harmless(context.Cause(ctx)); err != nil {
		closeAll(links)
		return nil, err
	}
	return links, nil
}

// ready agrees with a rank on what carries the frames, and takes the descriptor of the connection.
func (c *connecting) ready(ctx context.Context, w *meet.Conn) (engine.Link, error) {
	if w.Purpose != meet.Peer || w.Dialed != (w.Rank < c.id.Rank) {
		w.Close()
		return nil, fmt.Errorf("a connection to rank %d from the wrong side", w.Rank)
	}
	rings, err := c.rings(ctx, w)
	if err != nil {
		w.Close()
		return nil, err
	}
	l := &link{sums: c.cfg.Checksum, enc: w.Enc, dec: w.Dec}
	below := w.Below()
	if rings == nil && below != w.Conn {
		l.tls = newSecured(w.Conn)
		w.Replace(rawConn{below, l.tls})
	}
	sock, err := takeSocket(below)
	if rings != nil {
		if rings.sock = sock; err == nil {
			return rings, nil
		}
		rings.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("the connection to rank %d: %w", w.Rank, err)
	}
	l.use(sock)
	return l, nil
}

// closeAll gives back what links have; some may be nil.
func closeAll(links []engine.Link) {
	for _, l := range links {
		if l != nil {
			l.Close()
		}
	}
}

// sharing describes with which ranks of the node this one shares memory, for Diagnostics.
func (c *connecting) sharing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	others, shared, why := 0, 0, c.noNode
	for r := range c.members {
		if r == c.id.Rank || !c.members[r].Shares(c.self()) {
			continue
		}
		others++
		if failed, ok := c.why[r]; ok && failed == "" {
			shared++
		} else {
			why = cmp.Or(why, failed)
		}
	}
	switch {
	case others == 0:
		return "shared memory: no other rank on this node"
	case c.cfg.Sockets:
		return "shared memory: turned off (COHORT_TCP_SHM=0)"
	}
	text := fmt.Sprintf("shared memory: with %d of the %d other ranks on this node", shared, others)
	if c.node != nil {
		text += fmt.Sprintf(", %d KiB each way", c.node.Data>>10)
	}
	if why != "" {
		text += "; sockets to the others: " + why
	}
	return text
}
