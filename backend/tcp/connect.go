package tcp

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// connecting is a rank that makes its connections to the others.
type connecting struct {
	id      *wire.Identity
	l       *wire.Listener
	members []wire.Member
	ring    int  // length of a ring of shared memory
	sums    bool // Config.Checksum
	demand  bool // only the connections with rank 0 are made at the start

	shared int // ranks with which there is shared memory
	why    map[int]string
}

// made is a connection that is ready, or why there is none.
type made struct {
	rank   int
	conn   conn
	reason string // why it has no shared memory, of a rank of this node
	err    error
}

// all makes the connections of the start, by rank. Of two ranks the higher one dials.
func (c *connecting) all(ctx context.Context) (conns []conn, err error) {
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
	conns = make([]conn, len(members))
	for i := range conns {
		conns[i].fd = -1
	}
	defer func() {
		if err != nil {
			for i := range conns {
				conns[i].close()
			}
		}
	}()
	for missing := above + below; missing > 0; {
		m := <-results
		if m.err == nil && conns[m.rank].fd >= 0 {
			m.err = fmt.Errorf("a second connection to rank %d", m.rank)
			m.conn.close()
		}
		if m.err == nil {
			conns[m.rank] = m.conn
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
			late.conn.close()
		}
		return nil, m.err
	}
	return conns, nil
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
	if shares(&c.members[w.Rank], &c.members[c.id.Rank]) {
		var err error
		if m.conn.over, m.reason, err = share(ctx, w, c.ring, !w.Dialed); err != nil {
			return fail(err)
		}
	}
	m.conn.enc, m.conn.dec = w.Frames(pieceMax)
	m.conn.sums = c.sums
	below := w.Below()
	if m.conn.over == nil && below != w.Conn {
		s, err := newSecured(w)
		if err != nil {
			return fail(err)
		}
		w.Replace(rawConn{s})
		m.conn.over = s
	}
	fd, err := takeSocket(below)
	if err != nil {
		if m.conn.over != nil {
			m.conn.over.release()
		}
		return fail(fmt.Errorf("the connection to rank %d: %w", w.Rank, err))
	}
	m.conn.fd = fd
	return m
}

// close gives back what a connection has, if there is one.
func (c *conn) close() {
	if c.enc == nil {
		return
	}
	sockClose(c.fd)
	if c.over != nil {
		c.over.release()
	}
}

func (c *connecting) note(m *made) {
	if _, ok := m.conn.over.(*shared); ok {
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
	node := 0
	for r := range c.members {
		if r != self.Rank && c.members[r].Shares(self) {
			node++
		}
	}
	switch {
	case node == 0:
		list = append(list, "shared memory: no other rank on this node")
	case c.shared > 0:
		list = append(list, fmt.Sprintf("shared memory: with %d of the %d other ranks on this node, %d KiB each way", c.shared, node, c.ring>>10))
	case flags(self)&infoShares == 0 && cfg.Sockets:
		list = append(list, "shared memory: turned off (COHORT_TCP_SHM=0)")
	case len(c.why) == 0:
		list = append(list, fmt.Sprintf("shared memory: with none of the %d other ranks on this node", node))
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

// Diagnostics implements backend.Diagnoser.
func (c *comm) Diagnostics() []string {
	e := c.e
	var list []string
	if e.demand != nil {
		e.mu.Lock()
		list = append(e.demand.facts(), e.listDemand())
		e.mu.Unlock()
	} else {
		list = slices.Clone(e.facts)
	}
	for _, door := range e.doors {
		if report := door.Report(); report != "" {
			list = append(list, "unauthenticated peers: "+report)
		}
	}
	return list
}
