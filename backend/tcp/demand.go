package tcp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// demand makes connections on demand, when two ranks first need one.
//
// Of two ranks the higher one always dials, so that there cannot be two connections. The lower one sends
// it a dial request, over a separate connection. Each end confirms the connection and sends nothing
// more until the other has confirmed it too: a connection that ends earlier has carried nothing, and is
// made again.
//
// Every rank listens until it leaves, so a rank that is alive answers a request. A rank is lost for
// another one only if that one has asked it and had no answer for the heartbeat limit, or for a second if
// that is longer, or if its machine answers that no process listens. Time that a third rank takes (to
// connect, to forward a notice, to find a loss) does not count.
//
// The engine's lock guards what changes.
type demand struct {
	c      *connecting
	e      *engine
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines that make connections

	waiting []*link         // wanted, and without a connection
	stale   []stream        // of connections that failed: a waiter may be about to disarm them
	facts   func() []string // for Diagnostics

	hub   int // see rehub
	alone int // ticks without a connection to any rank that could be the hub
	wide  int // how many of those are asked

	acked  []bool // by world rank: it has acknowledged this rank's goodbye
	parted bool   // this rank has said it
	let    bool   // the hub has taken over to inform the others
}

const (
	attemptFor   = 5 * time.Second       // of one dial
	attemptPause = 20 * time.Millisecond // between two, at first
	attemptRest  = 500 * time.Millisecond
	attemptsMost = 20 // connections with a rank that end before they are confirmed, in a row
	refusalCosts = 7  // how many of these a refusal counts for: a damaged byte can look like one
	comeTicks    = 3  // ticks in which others may connect to the hub before it sends dial requests

	// reachLeast is the shortest limit for the answer to a request: both ends start goroutines, compute
	// proofs, and check certificates.
	reachLeast = time.Second
)

func newDemand(c *connecting) *demand {
	d := &demand{c: c, acked: make([]bool, len(c.members)), wide: 1}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// serve accepts the connections of ranks that dial, and answers dial requests.
func (d *demand) serve() {
	e := d.e
	d.accept(wire.Peer, func(ctx context.Context, w *wire.Conn) {
		if m := d.c.ready(ctx, w); m.err == nil {
			d.came(e.links[m.rank], &m)
		}
	})
	d.accept(wire.DialRequest, d.open)
}

func (d *demand) accept(purpose wire.Purpose, take func(context.Context, *wire.Conn)) {
	d.all.Go(func() {
		for {
			w, err := d.c.l.Accept(d.ctx, purpose)
			if d.ctx.Err() != nil {
				if err == nil {
					w.Close()
				}
				return
			}
			if err != nil { // no descriptor is free: the dialing rank tries again, and in the end gives up
				continue
			}
			d.all.Go(func() {
				ctx, cancel := context.WithTimeout(d.ctx, attemptFor)
				defer cancel()
				take(ctx, w)
			})
		}
	})
}

// end gives up the attempts under way, and closes the listener. The engine is closed.
func (d *demand) end() {
	d.cancel()
	d.c.l.Close()
	d.all.Wait()
}

func (d *demand) release() {
	for _, s := range d.stale {
		s.release()
	}
	d.stale = nil
}

// need starts to make a connection, if there is none. The lock is held.
func (e *engine) need(l *link) {
	if d := e.demand; d != nil && d.want(l) {
		d.ask(l, 0)
	}
}

// want marks a link as needing a connection, and reports whether it has none.
func (d *demand) want(l *link) bool {
	if l.dead || d.e.isClosed {
		return false
	}
	if !l.wanted {
		l.wanted, l.quiet = true, 0
		d.waiting = append(d.waiting, l)
		l.sayEnded()
	}
	return l.fd < 0
}

// ask dials a lower rank, or sends a higher one dial requests, until there is a connection or none is
// needed any more. giveUpWaiting marks a rank that does not answer lost. The lock is held.
func (d *demand) ask(l *link, pause time.Duration) {
	if l.asking {
		return
	}
	l.asking, l.quiet = true, 0
	try := d.dial
	if l.peer > d.e.me {
		try = d.requestDial
	}
	d.all.Go(func() {
		for ; ; pause = min(max(2*pause, attemptPause), attemptRest) {
			if pause > 0 {
				select {
				case <-d.ctx.Done():
				case <-time.After(pause/2 + rand.N(pause)):
				}
			}
			ctx, cancel := context.WithTimeout(d.ctx, attemptFor)
			err := try(ctx, l)
			cancel()
			if d.asked(l, err) {
				return
			}
		}
	})
}

// asked handles the end of an attempt, and reports whether it was the last one.
func (d *demand) asked(l *link, err error) (over bool) {
	e := d.e
	e.mu.Lock()
	defer e.unlock()
	if over = e.isClosed || l.fd >= 0 || l.dead || l.said; over {
		l.asking = false
		return true
	}
	l.why = err
	lost := wire.NotListening(err) && e.judges(l.peer)
	if wire.Refused(err) {
		l.failed += refusalCosts
		lost = lost || l.failed > attemptsMost
	}
	if lost {
		e.suspect(l.peer, "rank %d (%v) cannot be reached: %v", l.peer, e.peers[l.peer], err)
		e.handleLosses()
		l.asking = false
		return true
	}
	return false
}

func (d *demand) reach(ctx context.Context, l *link, purpose wire.Purpose) (*wire.Conn, error) {
	return wire.Dial(ctx, d.c.id, d.c.members[l.peer].Addrs, l.peer, purpose, 0)
}

// dial connects to a lower rank.
func (d *demand) dial(ctx context.Context, l *link) error {
	w, err := d.reach(ctx, l, wire.Peer)
	if err != nil {
		return err
	}
	m := d.c.ready(ctx, w)
	if m.err == nil {
		d.came(l, &m)
	}
	return m.err
}

// The answers to a dial request, before a text.
const (
	dialTaken byte = iota // a connection is being made
	dialLost              // the asking rank was declared lost; the text is encodeFault's
)

// requestDial asks a higher rank to dial.
func (d *demand) requestDial(ctx context.Context, l *link) error {
	w, err := d.reach(ctx, l, wire.DialRequest)
	if err != nil {
		return err
	}
	defer w.Close()
	said, err := w.ReceiveSettings(ctx, 1+noticeMax)
	switch {
	case err != nil:
		return err
	case len(said) == 0 || said[0] > dialLost:
		return fmt.Errorf("invalid answer %.20q to a dial request", said)
	}
	e := d.e
	e.mu.Lock()
	defer e.unlock()
	if l.quiet = 0; said[0] == dialLost {
		e.onLoss(l.peer, e.me, decodeFault(said[1:]))
	}
	return nil
}

// open answers a dial request.
func (d *demand) open(ctx context.Context, w *wire.Conn) {
	defer w.Close()
	e := d.e
	if w.Rank < 0 || w.Rank >= e.me || w.Dialed {
		return
	}
	text := []byte{dialTaken}
	e.mu.Lock()
	closed := e.isClosed
	if f := e.losses[w.Rank]; f != nil {
		text = append([]byte{dialLost}, encodeFault(f)...)
	} else {
		e.need(e.links[w.Rank])
	}
	e.unlock()
	if !closed { // a rank that has left does not answer
		_ = w.SendSettings(ctx, text)
	}
}

// came takes a new connection.
func (d *demand) came(l *link, m *made) {
	e := d.e
	e.mu.Lock()
	defer e.unlock()
	lost := e.losses[l.peer] != nil
	if e.isClosed || l.fd >= 0 || l.said || l.dead && !lost {
		m.conn.close()
		return
	}
	if l.over != nil {
		d.stale = append(d.stale, l.over)
	}
	d.c.note(m)
	l.dead, l.fresh, l.broken = false, false, nil // not what the last connection has left
	wanted := l.wanted
	l.up(&m.conn)
	if lost { // it does not know
		e.sendLost(l, l.peer)
		l.cut()
		return
	}
	l.fresh, l.quiet, l.mute = true, 0, 0
	if !wanted { // the other end has asked for it
		l.sayEnded()
	}
	if !l.confirm() {
		l.again()
		return
	}
	if d.hub == e.me {
		e.greet(l)
	}
	if d.parted {
		l.sayGoodbye()
	}
	e.wakeLeader() // to listen to it
}

// confirm says that the connection is taken, before all that waits for it.
func (l *link) confirm() bool {
	sign := heartbeat
	l.encode(&sign, nil)
	n, err := l.write(nil, 0)
	return err == nil && n == wire.HeaderSize // a new connection has room for it
}

// taken is called when the other end has taken the connection.
func (l *link) taken() {
	l.fresh, l.quiet, l.failed = false, 0, 0
	l.flush()
	l.e.wakeLeader()
}

// again is called when a connection ends that the other end has not taken: nothing was sent.
func (l *link) again() {
	e, d := l.e, l.e.demand
	sockClose(l.fd)
	l.fd, l.fresh, l.broken = -1, false, nil
	l.r0, l.r1 = 0, 0
	if l.gone {
		e.leftUnseen(l)
		return
	}
	if l.failed++; l.failed > attemptsMost {
		e.suspect(l.peer, "rank %d (%v) cannot be reached: %d connections with it have ended before they were confirmed", l.peer, e.peers[l.peer], l.failed)
		return
	}
	if !slices.Contains(d.waiting, l) {
		d.waiting = append(d.waiting, l)
	}
	d.ask(l, attemptPause)
}

// giveUpWaiting is called once each tick: it takes ranks for lost that were asked for a connection, and have
// not answered.
func (e *engine) giveUpWaiting() {
	d := e.demand
	if d == nil {
		return
	}
	d.waiting = slices.DeleteFunc(d.waiting, func(l *link) bool {
		if l.fd >= 0 || l.dead || l.said {
			return true
		}
		l.quiet++
		if !l.asking { // it may come by itself
			if l.quiet >= comeTicks {
				d.ask(l, 0)
			}
			return false
		}
		if l.quiet <= e.life.reach || e.life.limit < 0 {
			return false
		}
		why := "no answer"
		if l.why != nil {
			why = l.why.Error()
		}
		e.suspect(l.peer, "rank %d (%v) could not be reached for %v: %s", l.peer, e.peers[l.peer], max(e.life.limit, reachLeast), why)
		return true
	})
	d.askMore()
}

// listDemand is a line of Diagnostics.
func (e *engine) listDemand() string {
	n := 0
	for _, l := range e.open {
		if l.fd >= 0 {
			n++
		}
	}
	return fmt.Sprintf("connections: made on demand (COHORT_TCP_CONNECT), now with %d of the %d other ranks; rank %d forwards notices",
		n, len(e.links)-1, e.demand.hub)
}
