package meet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

const (
	tableTimeout = 30 * time.Second // for sending the table to one rank
	tellTimeout  = time.Second      // for sending one rank why the job fails to start
	lingering    = 2 * time.Second  // how long a coordinator that is a rank tells late ranks why

	// Spare is how long before a rank gives up, at most, the coordinator does, so that ranks learn why.
	Spare = 500 * time.Millisecond

	// Where processes are replaced, ranks wait for minutes. beat is the time between the heartbeats that they get meanwhile,
	// and silence the time without any after which they take the coordinator for lost: it sends none while it sends the table.
	beat    = 5 * time.Second
	silence = tableTimeout + 2*beat

	// blame is how long the coordinator waits, when a rank reports that it cannot connect, for the end of
	// the rank that caused it.
	blame = 200 * time.Millisecond
)

// A coordinator runs a rendezvous. Its fields belong to one goroutine; others read the connections.
type coordinator struct {
	l       *Listener
	members []Member
	conns   []*Conn // of the ranks that have joined, or were refused
	events  chan event
	begun   time.Time
	until   []time.Time      // when the ranks that have joined must learn that others are missing; zero: never
	giveUp  time.Time        // the first of them; zero: not yet known
	late    <-chan time.Time // then
	round   round
}

// A round is a wait for a message of one kind from every rank.
type round struct {
	want        frame.Kind // Join, then Connected
	verb, state string     // what the ranks do, and are then
	done        []bool     // which ranks have sent it
	left        int        // how many have not
	failed      error      // of the first rank that cannot connect
}

func (o *round) finish(r int) {
	o.done[r] = true
	o.left--
}

// An event is a message from a connection, or its end.
type event struct {
	conn    *Conn
	kind    frame.Kind
	payload []byte
	err     error
}

// Serve starts the Launcher as the coordinator of a job, at l. Errors go to the ranks. end is called at the
// end of the job: it ends what is still under way, and closes l.
func Serve(l *Listener) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = newCoordinator(l).run(ctx, nil) })
	return func() {
		cancel()
		running.Wait()
		l.Close()
	}
}

func newCoordinator(l *Listener) *coordinator {
	n := l.id.Size
	return &coordinator{l: l, members: make([]Member, n), conns: make([]*Conn, n), until: make([]time.Time, n), events: make(chan event), begun: time.Now()}
}

// run is the coordinator's part in a rendezvous. own is the connection of this process, if it is a rank
// too.
//
// The rendezvous fails if a rank is missing when ctx ends or when another rank is about to give up, if two
// processes claim the same rank, if the sizes differ, if a rank ends, or if one cannot connect to another.
// Then all ranks get the error that run returns.
//
// If processes are replaced (Identity), a rank that ends before all have joined is missing again, and the ranks learn
// nothing of a rank 0 that is canceled: its replacement waits for them. Once a rank is there that has been in a world
// before, the same holds for ranks that are about to give up: the others wait until they come again. Of two
// processes that claim the same rank, the later one joins in place of the other.
//
// Unauthenticated peers do not make it fail; the error counts their connections. Ranks that come later learn of the outcome
// too: the Launcher tells them until ctx ends, a rank for some seconds.
func (g *coordinator) run(ctx context.Context, own *Conn) error {
	var readers sync.WaitGroup
	defer readers.Wait()
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if own != nil {
		readers.Go(func() { g.read(reading, own) })
	}
	readers.Go(func() {
		for {
			c, err := g.l.Accept(reading)
			if err != nil {
				return
			}
			readers.Go(func() { g.read(reading, c) })
		}
	})

	err := g.await(ctx, frame.Join)
	if g.l.id.Replaced && (errors.Is(err, backend.ErrCanceled) || errors.Is(err, backend.ErrTimeout) && g.rejoins()) {
		return err
	}
	if err == nil {
		g.tell(frame.Table, encode(g.members), tableTimeout)
		err = g.await(ctx, frame.Connected)
	}
	if err != nil {
		g.tell(frame.Refused, backend.AsFault(err).Encode(maxRefusal), tellTimeout)
	} else {
		g.tell(frame.Connected, nil, tableTimeout)
	}
	if own == nil {
		g.answerLate(ctx, err, true)
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lingering)
	defer cancel()
	g.answerLate(ctx, err, false)
	return err
}

// read reads a connection until it ends or ctx does, and closes it.
func (g *coordinator) read(ctx context.Context, c *Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	for e := (event{conn: c}); e.err == nil; {
		e.kind, e.payload, e.err = c.receive(max(maxJoin, maxRefusal))
		select {
		case g.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// await waits until every rank has sent a message of the kind, and returns nil, or why the job cannot start.
func (g *coordinator) await(ctx context.Context, want frame.Kind) error {
	g.round = round{want, "join", "were there", make([]bool, len(g.members)), len(g.members), nil}
	if want == frame.Connected {
		g.round.verb, g.round.state = "connect to the others", "were connected"
	}
	var alive <-chan time.Time
	if g.l.id.Replaced {
		ticks := time.NewTicker(beat)
		defer ticks.Stop()
		alive = ticks.C
	}
	for g.round.left > 0 {
		var e event
		select {
		case e = <-g.events:
		case <-alive:
			g.tell(frame.Heartbeat, nil, tellTimeout)
			continue
		case <-g.late:
			if g.excuse(ctx) {
				continue
			}
		case <-ctx.Done():
		}
		if ctx.Err() != nil || e.conn == nil {
			return cmp.Or(g.round.failed, g.missing(ctx))
		}
		if err := g.handle(e); err != nil {
			return err
		}
	}
	return g.round.failed
}

// excuse lets a rank that is about to give up be missing, and reports whether the others wait for it to come again.
func (g *coordinator) excuse(ctx context.Context) bool {
	r := slices.Index(g.until, g.giveUp)
	if g.round.want != frame.Join || !g.rejoins() || r == g.l.id.Rank {
		return false
	}
	_ = g.refuse(g.conns[r], g.missing(ctx))
	g.leave(r)
	return true
}

// handle handles an event, and returns why the job cannot start.
//
//	connection      event                 what follows
//	has not joined  its end               nothing: the rank is missing
//	                Join                  the rank joins (admit), maybe in place of another process (replace)
//	has joined      its end               the rank is missing again, if processes are replaced and not all have joined
//	                Connected, Refused    the rank has done its part in the second round
//
// Anything else keeps the job from starting.
func (g *coordinator) handle(e event) error {
	r := e.conn.Rank
	m, joined, unfinished := &g.members[r], g.conns[r] == e.conn, !g.round.done[r]
	broken := errors.Is(e.err, frame.ErrFrame)
	switch {
	case e.err != nil && !joined && broken:
		return g.refuse(e.conn, backend.Faultf(backend.ErrInit, "rank %d, from %s: %v", r, e.conn.RemoteAddr(), e.err))
	case e.err != nil && !joined:
	case e.err != nil && g.l.id.Replaced && g.round.want == frame.Join && !broken:
		g.leave(r)
	case e.err != nil:
		return backend.Faultf(backend.ErrPeerLost, "%v ended before all ranks of the job %s: %v", m, g.round.state, e.err)
	case e.kind == frame.Join && !joined && g.conns[r] != nil && g.l.id.Replaced:
		return g.replace(e)
	case e.kind == frame.Join && !joined:
		return g.admit(e)
	case e.kind == frame.Connected && joined && unfinished && g.round.want == frame.Connected:
		g.round.finish(r)
	case e.kind == frame.Refused && joined && unfinished && g.round.want == frame.Connected:
		if g.round.failed == nil {
			why := decodeRefused(e.payload)
			g.round.failed = backend.Faultf(why.Sentinel, "%v: %s", m, why.Text)
			g.giveUpAt(time.Now().Add(blame))
		}
		g.round.finish(r)
	default:
		return g.refuse(e.conn, backend.Faultf(backend.ErrInit, "rank %d, from %s, sent %q before all ranks of the job %s",
			r, e.conn.RemoteAddr(), e.kind, g.round.state))
	}
	return nil
}

// replace handles a second process that joins as a rank: the end of the first one was not noticed, or the second is the
// first's predecessor.
func (g *coordinator) replace(e event) error {
	r := e.conn.Rank
	why := backend.Faultf(backend.ErrPeerLost, "another process has joined as %s", who(r))
	switch {
	case g.replaced(e):
		_ = g.refuse(e.conn, why)
		return nil
	case g.round.want == frame.Connected:
		e.conn.Close() // without an answer: it looks for the next rendezvous
		return why
	}
	_ = g.refuse(g.conns[r], why)
	g.leave(r)
	return g.admit(e)
}

// admit adds a rank that joins, or refuses it.
func (g *coordinator) admit(e event) error {
	c, size := e.conn, len(g.members)
	j, err := decodeJoin(e.payload, c.Rank)
	m := &j.Member
	switch {
	case err != nil:
		return g.refuse(c, backend.Faultf(backend.ErrInit, "rank %d, from %s: join: %v", c.Rank, c.RemoteAddr(), err))
	case j.Size != size:
		return g.refuse(c, backend.Faultf(backend.ErrInit, "%v belongs to a job of %d ranks, the coordinator to one of %d; give all the same size", m, j.Size, size))
	case g.conns[m.Rank] != nil:
		return g.refuse(c, backend.Faultf(backend.ErrInit, "two processes claim to be rank %d: %v and %v", m.Rank, &g.members[m.Rank], m))
	}
	g.round.finish(m.Rank)
	g.members[m.Rank], g.conns[m.Rank] = *m, c
	if j.Patience > 0 {
		g.until[m.Rank] = time.Now().Add(j.Patience - min(j.Patience/4, Spare))
		g.giveUpAt(g.until[m.Rank])
	}
	return nil
}

// leave makes a rank that has joined missing again.
func (g *coordinator) leave(r int) {
	g.round.done[r] = false
	g.round.left++
	g.conns[r], g.until[r], g.members[r].Worlds = nil, time.Time{}, 0
	g.giveUp, g.late = time.Time{}, nil
	for _, at := range g.until {
		if !at.IsZero() {
			g.giveUpAt(at)
		}
	}
}

// rejoins reports whether this is a rendezvous for a next world: a rank is there that has been in one before.
func (g *coordinator) rejoins() bool {
	return g.l.id.Replaced && slices.ContainsFunc(g.members, func(m Member) bool { return m.Worlds > 0 })
}

// replaced reports whether a process comes to join whose replacement has. A process that has been in no world was started
// after all that have.
func (g *coordinator) replaced(e event) bool {
	j, err := decodeJoin(e.payload, e.conn.Rank)
	there := g.members[e.conn.Rank].Worlds
	return err == nil && j.Member.Worlds > 0 && (there == 0 || there > j.Member.Worlds)
}

// giveUpAt makes the coordinator give up at a time, unless it does so earlier.
func (g *coordinator) giveUpAt(at time.Time) {
	if g.giveUp.IsZero() || at.Before(g.giveUp) {
		g.giveUp, g.late = at, time.After(time.Until(at))
	}
}

// missing returns the error that names the ranks that have not done their part in the round.
func (g *coordinator) missing(ctx context.Context) error {
	var missing []int
	for r, done := range g.round.done {
		if !done && (r != g.l.id.Rank || g.conns[r] != nil) { // this process is there, though its own message may be unread
			missing = append(missing, r)
		}
	}
	text := fmt.Sprintf("%d of %d ranks did not %s within %v: %s", len(missing), len(g.members), g.round.verb,
		time.Since(g.begun).Round(time.Millisecond), backend.RankList(missing))
	if report := g.l.Report(); report != "" {
		text += "; " + report
	}
	if ctx.Err() != nil {
		return ended(ctx, "%s", text)
	}
	return backend.Faultf(backend.ErrTimeout, "%s", text)
}

// tell sends all ranks present a message. If that fails for one, its connection is closed, and the others
// find that rank lost. This process, which may not read now, gets no heartbeat.
func (g *coordinator) tell(kind frame.Kind, payload []byte, limit time.Duration) {
	var all sync.WaitGroup
	for r, c := range g.conns {
		if c != nil && (kind != frame.Heartbeat || r != g.l.id.Rank) {
			all.Go(func() {
				if c.send(kind, payload, limit) != nil {
					c.Close()
				}
			})
		}
	}
	all.Wait()
}

// refuse sends a rank that is not admitted why, and returns that.
func (g *coordinator) refuse(c *Conn, why error) error {
	_ = c.send(frame.Refused, backend.AsFault(why).Encode(maxRefusal), tellTimeout)
	c.Close()
	g.conns[c.Rank] = cmp.Or(g.conns[c.Rank], c)
	return why
}

// answerLate tells ranks that come late the outcome. They would otherwise wait for a coordinator that has
// ended.
func (g *coordinator) answerLate(ctx context.Context, outcome error, all bool) {
	if outcome == nil {
		outcome = backend.Faultf(backend.ErrInit, "the job has started already")
	}
	for all || slices.Contains(g.conns, nil) {
		select {
		case e := <-g.events:
			if e.kind == frame.Join && e.err == nil {
				_ = g.refuse(e.conn, outcome)
			}
		case <-ctx.Done():
			return
		}
	}
}
