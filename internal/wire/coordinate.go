package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

const (
	joinTimeout  = 5 * time.Second  // for a rank's join message, after its handshake
	tableTimeout = 30 * time.Second // for sending the table to one rank
	tablesAtOnce = 64               // sends at once: they share the network, and the table of 10 000 ranks has 2 MB
	tellTimeout  = time.Second      // for sending one rank why the job fails to start
	lingering    = 2 * time.Second  // how long late ranks get that error
	spare        = 500 * time.Millisecond
)

// A gathering is a rendezvous under way. Its fields belong to the coordinator's goroutine.
type gathering struct {
	id       *Identity
	l        *Listener
	members  []Member
	there    []bool
	conns    []*Conn
	informed []bool // has been sent why the job fails to start
	missing  int
	fault    error

	events   chan event
	stop     chan struct{}
	all      sync.WaitGroup // the goroutines that send events
	watchers sync.WaitGroup
}

// An event is a rank that has sent its join message, or one whose connection has ended.
type event struct {
	conn    *Conn
	joining joining
	err     error
	gone    bool
}

// Coordinate is the coordinator's part in the rendezvous. It waits until all ranks have joined, and sends
// each the table of all. self describes this process if it is a rank; it is nil for the Launcher.
// Coordinate returns the members and the connections to them, nil for its own.
//
// The connections stay open, for [Oversee]. The rendezvous fails if a rank has not joined when ctx
// ends or when another rank is about to give up, if two processes claim the same rank, if the sizes
// differ, or if a rank ends before all have joined. Then all ranks present get the same error as the
// caller. Unauthenticated peers do not make it fail; the error counts their connections. A listener
// serves one rendezvous: ranks that come later are refused.
func Coordinate(ctx context.Context, l *Listener, self *Member) ([]Member, []*Conn, error) {
	id := l.id
	switch {
	case !id.Coordinator:
		return nil, nil, fault(backend.ErrInit, "the identity of the listener is not the coordinator's")
	case (self == nil) != (id.Rank == Launcher) || self != nil && self.Rank != id.Rank:
		return nil, nil, fault(backend.ErrInit, "the coordinator is %s, and joins as another rank", who(id.Rank))
	}
	g := &gathering{
		id: id, l: l, members: make([]Member, id.Size), there: make([]bool, id.Size), conns: make([]*Conn, id.Size),
		informed: make([]bool, id.Size), missing: id.Size, events: make(chan event), stop: make(chan struct{}),
	}
	if self != nil {
		if err := self.check(); err != nil {
			return nil, nil, fault(backend.ErrInit, "%v", err)
		}
		g.members[id.Rank], g.there[id.Rank], g.informed[id.Rank] = *self, true, true
		g.missing--
	}
	err := g.gather(ctx)
	l.endJoin()
	close(g.stop)
	for _, c := range g.conns { // ends the watchers
		if c != nil {
			c.SetReadDeadline(time.Unix(1, 0))
		}
	}
	g.watchers.Wait()
	for _, c := range g.conns {
		if c == nil {
			continue
		}
		if err != nil {
			c.Close()
		} else {
			c.SetReadDeadline(time.Time{})
		}
	}
	if err != nil {
		return nil, nil, err
	}
	g.send()
	return g.members, g.conns, nil
}

// gather waits for the ranks.
//
//  1. Each connection is read by its own goroutine, which sends an event.
//  2. An error is sent to all ranks present.
//  3. Ranks that come later get it too, for a time. They would otherwise wait for a coordinator that has
//     ended.
func (g *gathering) gather(ctx context.Context) error {
	accepting, cancel := context.WithCancel(ctx)
	defer g.all.Wait()
	defer cancel()
	failed := make(chan error, 1)
	if g.missing > 0 {
		g.all.Go(func() { failed <- g.accept(accepting) })
	}
	start := time.Now()
	impatient, linger := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	impatient.Stop()
	linger.Stop()
	defer impatient.Stop()
	defer linger.Stop()
	var first time.Time // when the first rank gives up
	for g.missing > 0 {
		had := g.fault
		select {
		case e := <-g.events:
			g.take(e)
			if p := e.joining.patience; p > 0 && g.fault == nil {
				wait := time.Duration(p) * time.Millisecond
				if at := time.Now().Add(wait - min(wait/4, spare)); first.IsZero() || at.Before(first) {
					first = at
					impatient.Reset(time.Until(at))
				}
			}
		case <-impatient.C:
			if g.fault == nil {
				return g.fail(g.late(backend.ErrTimeout, start))
			}
		case <-ctx.Done():
			if g.fault != nil {
				return g.fault
			}
			sentinel := backend.ErrCanceled
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				sentinel = backend.ErrTimeout
			}
			return g.fail(g.late(sentinel, start))
		case err := <-failed:
			if g.fault != nil {
				return g.fault
			}
			if ctx.Err() == nil {
				return g.fail(fault(backend.ErrInit, "the coordinator: %v", err))
			}
		case <-linger.C:
			return g.fault
		}
		if g.fault != nil {
			if had == nil {
				_ = g.fail(g.fault)
				linger.Reset(lingering)
			}
			waiting := false
			for _, informed := range g.informed {
				waiting = waiting || !informed
			}
			if !waiting {
				return g.fault
			}
		}
	}
	return g.fault
}

// accept takes the ranks' connections until its context ends.
func (g *gathering) accept(ctx context.Context) error {
	for {
		c, err := g.l.Accept(ctx, Rendezvous)
		if err != nil {
			return err
		}
		g.all.Go(func() {
			stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
			e := event{conn: c}
			if e.err = c.SetReadDeadline(time.Now().Add(joinTimeout)); e.err == nil && ctx.Err() == nil {
				var payload []byte
				var kind frame.Kind
				if kind, payload, e.err = c.receive(maxJoin); e.err == nil && kind != frame.Join {
					e.err = fmt.Errorf("it sent %q, want a join", kind)
				}
				if e.err == nil {
					e.joining, e.err = decodeJoin(payload)
				}
			}
			if !stop() || e.err == nil && c.SetReadDeadline(time.Time{}) != nil {
				c.Close()
				return
			}
			select {
			case g.events <- e:
			case <-ctx.Done():
				c.Close()
			}
		})
	}
}

// take deals with an event.
func (g *gathering) take(e event) {
	r := e.conn.Rank
	m := e.joining.member
	switch {
	case g.fault != nil:
		if !e.gone {
			g.refuse(e.conn, g.fault)
		}
	case e.gone:
		g.fault = fault(backend.ErrPeerLost, "%v ended before all ranks before all ranks of the job were there: %v", &g.members[r], e.err)
	case e.err != nil && (errors.Is(e.err, frame.ErrFrame) || !network(e.err)):
		g.fault = fault(backend.ErrInit, "rank %d, from %s: %v", r, remote(e.conn), e.err)
		g.refuse(e.conn, g.fault)
	case e.err != nil:
		e.conn.Close() // it tries again, or is missing
	case m.Rank != r:
		g.fault = fault(backend.ErrInit, "a process authenticated as rank %d joins as %v", r, &m)
		g.refuse(e.conn, g.fault)
	case e.joining.size != g.id.Size:
		g.fault = fault(backend.ErrInit, "%v belongs to a job of %d ranks, the coordinator to one of %d; give all the same size", &m, e.joining.size, g.id.Size)
		g.refuse(e.conn, g.fault)
	case g.there[r]:
		g.fault = fault(backend.ErrInit, "two processes claim to be rank %d: %v and %v", r, &g.members[r], &m)
		g.refuse(e.conn, g.fault)
	default:
		if err := e.conn.send(frame.Joined, nil, time.Now().Add(joinTimeout)); err != nil {
			e.conn.Close() // it got no answer, and tries again if it can
			return
		}
		g.members[r], g.conns[r], g.there[r] = m, e.conn, true
		g.missing--
		g.watch(e.conn)
	}
}

// network reports whether an error is one of the connection, not of the bytes received.
func network(err error) bool {
	var op interface{ Timeout() bool }
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// watch waits for the end of a rank's connection while others are missing. A rank sends nothing until it
// has the table.
func (g *gathering) watch(c *Conn) {
	g.watchers.Go(func() {
		var b [1]byte
		_, err := c.Read(b[:])
		switch {
		case err == nil:
			err = errors.New("it sent data before it had the table")
		case timedOut(err):
			return // Coordinate has ended it
		}
		select {
		case g.events <- event{conn: c, err: err, gone: true}:
		case <-g.stop:
		}
	})
}

// late returns the error that names the missing ranks.
func (g *gathering) late(sentinel error, since time.Time) error {
	var missing []int
	for r, there := range g.there {
		if !there {
			missing = append(missing, r)
		}
	}
	text := fmt.Sprintf("%d of %d ranks did not join within %v: %s", len(missing), g.id.Size,
		time.Since(since).Round(time.Millisecond), ranks(missing))
	if report := g.l.Report(); report != "" {
		text += "; " + report
	}
	return &backend.Fault{Sentinel: sentinel, Text: text}
}

// fail sends an error to all ranks present, and returns it.
func (g *gathering) fail(err error) error {
	var all sync.WaitGroup
	for r, c := range g.conns {
		if c != nil {
			g.informed[r] = true
			all.Go(func() { _ = c.send(frame.Refused, appendRefused(nil, err), time.Now().Add(tellTimeout)) })
		}
	}
	all.Wait()
	return err
}

// refuse sends an error to a rank that is not admitted.
func (g *gathering) refuse(c *Conn, err error) {
	_ = c.send(frame.Refused, appendRefused(nil, err), time.Now().Add(tellTimeout))
	c.Close()
	g.informed[c.Rank] = true
}

// send sends the table to all ranks. If that fails for one, its connection is closed, and the backend
// finds the rank lost.
func (g *gathering) send() {
	payload := appendTable(nil, g.members)
	var all sync.WaitGroup
	turn := make(chan struct{}, tablesAtOnce)
	for _, c := range g.conns {
		if c != nil {
			turn <- struct{}{}
			all.Go(func() {
				defer func() { <-turn }()
				if err := c.send(frame.Table, payload, time.Now().Add(tableTimeout)); err != nil {
					c.Close()
				}
			})
		}
	}
	all.Wait()
}
