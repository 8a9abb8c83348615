package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

const (
	joinTimeout  = 5 * time.Second  // for what a rank says of itself, once it has proved which it is
	tableTimeout = 30 * time.Second // for sending the table to one rank
	tablesAtOnce = 64               // to how many: they share the network, and the table of 10 000 ranks has 2 MB
	tellTimeout  = time.Second      // for sending why there will be no job to one rank
	lingering    = 2 * time.Second  // how long ranks that come late are told so
	spare        = 500 * time.Millisecond
)

// A gathering is a coordinator at work. Its fields are its own goroutine's.
type gathering struct {
	id      *Identity
	l       *Listener
	members []Member
	there   []bool
	conns   []*Conn
	told    []bool // why there will be no job
	missing int
	fault   error

	events   chan event
	stop     chan struct{}
	all      sync.WaitGroup // of those who send events
	watchers sync.WaitGroup
}

// An event is a rank that has said who it is, or one that is gone.
type event struct {
	conn    *Conn
	joining joining
	err     error
	gone    bool
}

// Coordinate brings the ranks of a job together, as the one they connect to: it waits until all have
// said who they are, and sends the table of them to each. self is this process if it is a rank, nil
// for the Launcher. It returns the members and the connections to them, nil for its own.
//
// The connections stay open, for [Oversee]. If a rank does not come until ctx ends, or until another rank
// is about to give up, if two say they are the same, if one is of a job of another size, or gone
// before all have come, all ranks that are there get the same error as the caller. What strangers do
// at the listener ends nothing; the error says what there was of it. A listener serves one meeting:
// who comes for it afterwards is refused.
func Coordinate(ctx context.Context, l *Listener, self *Member) ([]Member, []*Conn, error) {
	id := l.id
	switch {
	case !id.Coordinator:
		return nil, nil, fault(backend.ErrInit, "the identity of the listener is not the coordinator's")
	case (self == nil) != (id.Rank == Launcher) || self != nil && self.Rank != id.Rank:
		return nil, nil, fault(backend.ErrInit, "the coordinator is %s, and joins as another", who(id.Rank))
	}
	g := &gathering{
		id: id, l: l, members: make([]Member, id.Size), there: make([]bool, id.Size), conns: make([]*Conn, id.Size),
		told: make([]bool, id.Size), missing: id.Size, events: make(chan event), stop: make(chan struct{}),
	}
	if self != nil {
		if err := self.check(); err != nil {
			return nil, nil, fault(backend.ErrInit, "%v", err)
		}
		g.members[id.Rank], g.there[id.Rank], g.told[id.Rank] = *self, true, true
		g.missing--
	}
	err := g.gather(ctx)
	l.endMeeting()
	close(g.stop)
	for _, c := range g.conns { // the watches end, and take nothing with them
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
//  1. Each connection is read by a goroutine of its own, which sends what it was told.
//  2. What is wrong is sent to all who are there.
//  3. Those who come later are told too, for a time: they would otherwise wait for a coordinator
//     that is no more.
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
				return g.tell(g.late(backend.ErrTimeout, start))
			}
		case <-ctx.Done():
			if g.fault != nil {
				return g.fault
			}
			sentinel := backend.ErrCanceled
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				sentinel = backend.ErrTimeout
			}
			return g.tell(g.late(sentinel, start))
		case err := <-failed:
			if g.fault != nil {
				return g.fault
			}
			if ctx.Err() == nil {
				return g.tell(fault(backend.ErrInit, "the coordinator: %v", err))
			}
		case <-linger.C:
			return g.fault
		}
		if g.fault != nil {
			if had == nil {
				_ = g.tell(g.fault)
				linger.Reset(lingering)
			}
			waiting := false
			for _, told := range g.told {
				waiting = waiting || !told
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
		c, err := g.l.Accept(ctx, Meeting)
		if err != nil {
			return err
		}
		g.all.Go(func() {
			stop := context.AfterFunc(ctx, func() { c.SetReadDeadline(time.Unix(1, 0)) })
			e := event{conn: c}
			if e.err = c.SetReadDeadline(time.Now().Add(joinTimeout)); e.err == nil && ctx.Err() == nil {
				var payload []byte
				var kind Kind
				if kind, payload, e.err = c.receive(maxJoin); e.err == nil && kind != join {
					e.err = fmt.Errorf("it sends %q first", kind)
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
		g.fault = fault(backend.ErrPeerLost, "%v came and went before all ranks of the job were there: %v", &g.members[r], e.err)
	case e.err != nil && (errors.Is(e.err, ErrFrame) || !network(e.err)):
		g.fault = fault(backend.ErrInit, "rank %d, from %s: %v", r, remote(e.conn), e.err)
		g.refuse(e.conn, g.fault)
	case e.err != nil:
		e.conn.Close() // it comes again, or is missing
	case m.Rank != r:
		g.fault = fault(backend.ErrInit, "rank %d has proved that it is rank %d, and says it is %v", r, r, &m)
		g.refuse(e.conn, g.fault)
	case e.joining.size != g.id.Size:
		g.fault = fault(backend.ErrInit, "%v is of a job of %d ranks, and the coordinator of one of %d: give all the same size", &m, e.joining.size, g.id.Size)
		g.refuse(e.conn, g.fault)
	case g.there[r]:
		g.fault = fault(backend.ErrInit, "two processes say they are rank %d: %v and %v", r, &g.members[r], &m)
		g.refuse(e.conn, g.fault)
	default:
		if err := e.conn.send(joined, nil, time.Now().Add(joinTimeout)); err != nil {
			e.conn.Close() // it has seen no answer, and comes again if it can
			return
		}
		g.members[r], g.conns[r], g.there[r] = m, e.conn, true
		g.missing--
		g.watch(e.conn)
	}
}

// network reports whether an error is the connection's, not that of what came over it.
func network(err error) bool {
	var op interface{ Timeout() bool }
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op)
}

// watch waits for a rank's end while others are still to come. Until it has the table, a rank sends
// nothing.
func (g *gathering) watch(c *Conn) {
	g.watchers.Go(func() {
		var b [1]byte
		_, err := c.Read(b[:])
		switch {
		case err == nil:
			err = errors.New("it sends something before it has the table")
		case timedOut(err):
			return // the watch is over
		}
		select {
		case g.events <- event{conn: c, err: err, gone: true}:
		case <-g.stop:
		}
	})
}

// late is the error of ranks that did not come.
func (g *gathering) late(sentinel error, since time.Time) error {
	var missing []int
	for r, there := range g.there {
		if !there {
			missing = append(missing, r)
		}
	}
	text := fmt.Sprintf("%d of %d ranks did not come within %v: %s", len(missing), g.id.Size,
		time.Since(since).Round(time.Millisecond), ranks(missing))
	if report := g.l.Report(); report != "" {
		text += "; " + report
	}
	return &backend.Fault{Sentinel: sentinel, Text: text}
}

// tell sends an error to all ranks that are there, and returns it.
func (g *gathering) tell(err error) error {
	var all sync.WaitGroup
	for r, c := range g.conns {
		if c != nil {
			g.told[r] = true
			all.Go(func() { _ = c.send(refused, appendRefused(nil, err), time.Now().Add(tellTimeout)) })
		}
	}
	all.Wait()
	return err
}

// refuse sends an error to a rank that is not taken in.
func (g *gathering) refuse(c *Conn, err error) {
	_ = c.send(refused, appendRefused(nil, err), time.Now().Add(tellTimeout))
	c.Close()
	g.told[c.Rank] = true
}

// send sends the table to all. A rank to which that fails is lost: the connection is closed, and the
// backend finds it so as it would a moment later.
func (g *gathering) send() {
	payload := appendTable(nil, g.members)
	var all sync.WaitGroup
	turn := make(chan struct{}, tablesAtOnce)
	for _, c := range g.conns {
		if c != nil {
			turn <- struct{}{}
			all.Go(func() {
				defer func() { <-turn }()
				if err := c.send(table, payload, time.Now().Add(tableTimeout)); err != nil {
					c.Close()
				}
			})
		}
	}
	all.Wait()
}
