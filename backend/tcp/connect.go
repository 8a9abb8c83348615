package tcp

import (
	"context"
	"fmt"
	"sync"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/node"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// connecting is a rank that makes its connections to the others.
type connecting struct {
	cfg     Config
	id      *wire.Identity
	l       *wire.Listener
	members []wire.Member
	spare   bool // every rank of this node has a processor to itself
	ring    int  // length of a data ring of shared memory; 0: chosen
	join    *shortFrame

	local  []int      // place on this node, by rank; -1: of another node, or without shared memory
	node   *node.Node // nil: no shared memory
	noNode string     // why

	mu  sync.Mutex
	why map[int]string // why a rank of this node is connected by a socket; "" if it shares memory
}

// self describes this rank.
func (c *connecting) self() *wire.Member { return &c.members[c.id.Rank] }

// agreeOnConnect checks that all ranks make their connections at the same time.
func (c *connecting) agreeOnConnect() error {
	for r := range c.members {
		if c.members[r].OnDemand != c.self().OnDemand {
			return initFault("ranks %d and %d have different values of COHORT_TCP_CONNECT; give all ranks the same", c.id.Rank, r)
		}
	}
	return nil
}

// all makes the connections of the start, by rank. Of two ranks the higher one dials.
func (c *connecting) all(ctx context.Context) ([]engine.Link, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	above, below := len(c.members)-1-c.id.Rank, c.id.Rank
	if c.cfg.onDemand() { // only those with rank 0
		if c.id.Rank > 0 {
			above = 0
		}
		below = min(below, 1)
	}
	var mu sync.Mutex // guards links and failed
	links, failed := make([]engine.Link, len(c.members)), error(nil)
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if failed == nil {
			failed = err
		}
		cancel() // ends what is still under way
	}
	take := func(w *wire.Conn) {
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
			closeAll([]engine.Link{second})
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
		w, err := wire.Dial(ctx, c.id, c.members[r].Addrs, r, wire.Peer)
		if err != nil {
			fail(fmt.Errorf("connecting to %v: %w", &c.members[r], err))
			break
		}
		take(w)
	}
	makers.Wait()
	if failed == nil {
		failed = ctx.Err()
	}
	if failed != nil {
		closeAll(links)
		return nil, failed
	}
	return links, nil
}

// ready agrees with a rank on what carries the frames, and takes the descriptor of the connection.
func (c *connecting) ready(ctx context.Context, w *wire.Conn) (engine.Link, error) {
	if w.Purpose != wire.Peer || w.Dialed != (w.Rank < c.id.Rank) {
		w.Close()
		return nil, fmt.Errorf("a connection to rank %d from the wrong side", w.Rank)
	}
	rings, reason, err := c.rings(ctx, w)
	if err != nil {
		w.Close()
		return nil, err
	}
	l := &link{sums: c.cfg.Checksum, join: c.join}
	l.enc, l.dec = w.Frames(frame.MaxPayload)
	below := w.Below()
	if rings == nil && below != w.Conn {
		l.tls = newSecured(w.Conn)
		w.Replace(rawConn{below, l.tls})
	}
	fd, err := takeSocket(below)
	if err != nil {
		return nil, fmt.Errorf("the connection to rank %d: %w", w.Rank, err)
	}
	if rings != nil || reason != "" {
		c.mu.Lock()
		c.why[w.Rank] = reason
		c.mu.Unlock()
	}
	if rings != nil {
		return &near{Link: rings, fd: fd}, nil
	}
	l.use(fd)
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

// facts are the lines of Diagnostics.
func (c *connecting) facts() (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others, shared := 0, 0
	var sockets []string
	for r := range c.members {
		if r != c.id.Rank && c.members[r].Shares(c.self()) {
			others++
		}
		switch why, ok := c.why[r]; {
		case ok && why == "":
			shared++
		case ok:
			sockets = append(sockets, fmt.Sprintf("rank %d is on this node, and uses a socket: %s", r, why))
		}
	}
	switch {
	case others == 0:
		list = append(list, "shared memory: no other rank on this node")
	case shared > 0:
		list = append(list, fmt.Sprintf("shared memory: with %d of the %d other ranks on this node, %d KiB each way", shared, others, c.node.Data>>10))
	case c.cfg.Sockets:
		list = append(list, "shared memory: turned off (COHORT_TCP_SHM=0)")
	case len(sockets) == 0:
		list = append(list, fmt.Sprintf("shared memory: with none of the %d other ranks on this node", others))
	}
	if c.id.TLS != nil {
		list = append(list, "TLS 1.3 with certificates, to all ranks without shared memory")
	}
	return append(list, sockets...)
}
