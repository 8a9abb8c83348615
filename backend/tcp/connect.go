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
	id      *wire.Identity
	l       *wire.Listener
	members []wire.Member
	spare   bool // every rank of this node has a processor to itself
	ring    int  // length of a data ring of shared memory; 0: chosen
	join    *[corkMax + frame.HeaderSize + joinMax]byte
	sums    bool // Config.Checksum
	demand  bool // only the connections with rank 0 are made at the start

	local  []int      // place on this node, by rank; -1: of another node, or without shared memory
	node   *node.Node // nil: no shared memory
	noNode string     // why

	mu     sync.Mutex // guards the rest
	shared int        // ranks with which there is shared memory
	why    map[int]string
}

// made is a connection that is ready, or why there is none.
type made struct {
	rank   int
	link   engine.Link
	reason string // why it has no shared memory, of a rank of this node
	err    error
}

// all makes the connections of the start, by rank. Of two ranks the higher one dials.
func (c *connecting) all(ctx context.Context) (links []engine.Link, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, members := c.id, c.members
	above, below := len(members)-1-id.Rank, id.Rank
	if c.demand {
		if id.Rank > 0 {
			above = 0
		}
		below = min(below, 1)
	}
	results := make(chan made)
	var makers sync.WaitGroup
	makers.Go(func() {
		for range above { // those above dial
			w, err := c.l.Accept(ctx, wire.Peer)
			if err != nil {
				results <- made{err: err}
				return
			}
			makers.Go(func() { results <- c.ready(ctx, w) })
		}
	})
	makers.Go(func() {
		for r := range below {
			w, err := wire.Dial(ctx, id, members[r].Addrs, r, wire.Peer, 0)
			m := made{}
			if err != nil {
				m.err = fmt.Errorf("connecting to %v: %w", &members[r], err)
			} else {
				m = c.ready(ctx, w)
			}
			results <- m
			if m.err != nil {
				return
			}
		}
	})
	links = make([]engine.Link, len(members))
	defer func() {
		if err != nil {
			closeAll(links)
		}
	}()
	for missing := above + below; missing > 0; {
		m := <-results
		if m.err == nil && links[m.rank] != nil {
			m.err = fmt.Errorf("a second connection to rank %d", m.rank)
			closeAll([]engine.Link{m.link})
		}
		if m.err == nil {
			links[m.rank] = m.link
			c.note(&m)
			missing--
			continue
		}
		cancel() // ends the makers, when what they still have is taken
		go func() {
			makers.Wait()
			close(results)
		}()
		for late := range results {
			closeAll([]engine.Link{late.link})
		}
		return nil, m.err
	}
	return links, nil
}

// ready agrees with a rank on what carries the frames, and takes the descriptor of the connection.
func (c *connecting) ready(ctx context.Context, w *wire.Conn) made {
	fail := func(err error) made {
		w.Close()
		return made{err: err}
	}
	if w.Rank < 0 || w.Rank >= len(c.members) || w.Rank == c.id.Rank || w.Dialed != (w.Rank < c.id.Rank) {
		return fail(fmt.Errorf("a connection to rank %d from the wrong side", w.Rank))
	}
	m := made{rank: w.Rank}
	rings, reason, err := c.rings(ctx, w)
	if err != nil {
		return fail(err)
	}
	m.reason = reason
	l := &link{sums: c.sums}
	l.enc, l.dec = w.Frames(frame.MaxPayload)
	below := w.Below()
	if rings == nil && below != w.Conn {
		s, err := newSecured(w)
		if err != nil {
			return fail(err)
		}
		w.Replace(rawConn{s})
		l.tls = s
	}
	fd, err := takeSocket(below)
	if err != nil {
		return fail(fmt.Errorf("the connection to rank %d: %w", w.Rank, err))
	}
	if rings != nil {
		m.link = &near{Link: rings, fd: fd}
		return m
	}
	l.fd = fd
	l.carry(c.join)
	m.link = l
	return m
}

// closeAll gives back what links have; some may be nil.
func closeAll(links []engine.Link) {
	for _, l := range links {
		if l != nil {
			l.Close()
			l.Release()
		}
	}
}

func (c *connecting) note(m *made) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := m.link.(*near); ok {
		c.shared++
	}
	if m.reason != "" {
		if c.why == nil {
			c.why = make(map[int]string)
		}
		c.why[m.rank] = m.reason
	}
}

// facts are the lines of Diagnostics.
func (c *connecting) facts(cfg Config, self *wire.Member) (list []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := 0
	for r := range c.members {
		if r != self.Rank && c.members[r].Shares(self) {
			others++
		}
	}
	switch {
	case others == 0:
		list = append(list, "shared memory: no other rank on this node")
	case c.shared > 0:
		list = append(list, fmt.Sprintf("shared memory: with %d of the %d other ranks on this node, %d KiB each way", c.shared, others, c.node.Data>>10))
	case flags(self)&infoShares == 0 && cfg.Sockets:
		list = append(list, "shared memory: turned off (COHORT_TCP_SHM=0)")
	case len(c.why) == 0:
		list = append(list, fmt.Sprintf("shared memory: with none of the %d other ranks on this node", others))
	}
	if c.id.TLS != nil {
		list = append(list, "TLS 1.3 with certificates, to all ranks without shared memory")
	}
	for r := range c.members {
		if why := c.why[r]; why != "" {
			list = append(list, fmt.Sprintf("rank %d is on this node, and uses a socket: %s", r, why))
		}
	}
	return list
}
