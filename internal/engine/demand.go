package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/memlink"
)

// A Dialer makes the links of a job that makes them when two ranks first need one. Of two ranks the higher
// one always dials, so that there cannot be two links. The lower one asks it to. The dialer gives the
// engine the links that other ranks have dialed by Came, and their requests by Requested.
type Dialer interface {
	// Dial makes a link to a lower rank.
	Dial(ctx context.Context, rank int) (Link, error)
	// Request asks a higher rank to dial this one. If that rank takes this one for lost, Request returns
	// why.
	Request(ctx context.Context, rank int) (lost *backend.Fault, err error)
	// NotListening reports whether an error of Dial or Request says that no process listens there.
	NotListening(err error) bool
	// Refused reports whether an error says that the peer does not take this rank for one of its job.
	Refused(err error) bool
	// Serve starts to accept links and requests, until ctx ends.
	Serve(ctx context.Context, e *Engine)
	// Close is called after that. It returns when no call is in progress.
	Close()
}

// demand makes links on demand.
//
// Each end confirms a link and sends nothing more until the other has confirmed it too: a link that ends
// earlier has carried nothing, and is made again.
//
// Every rank accepts links until it leaves, so a rank that is alive answers a request. A rank is lost for
// another one only if that one has asked it and had no answer for the heartbeat limit, or for a second if
// that is longer, or if its machine answers that no process listens. Time that a third rank takes (to
// connect, to forward a notice, to find a loss) does not count.
//
// The engine's lock guards what changes.
type demand struct {
	dialer Dialer
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup                     // the goroutines that make links
	try    func(p *peer, pause time.Duration) // makes the attempts of ask; a simulation has its own

	hub   int // see rehub
	alone int // ticks without a link to any rank that could be the hub
	wide  int // how many of those are asked

	let bool // the hub has taken over to inform the others
}

const (
	attemptFor   = 5 * time.Second       // of one dial
	attemptPause = 20 * time.Millisecond // between two, at first
	attemptRest  = 500 * time.Millisecond
	attemptsMost = 20 // links with a rank that end before they are confirmed, in a row
	refusalCosts = 7  // how many of these a refusal counts for: a damaged byte can look like one
	comeTicks    = 3  // ticks in which others may connect to the hub before it asks them to

	// reachLeast is the shortest limit for the answer to a request: both ends start goroutines, compute
	// proofs, and check certificates.
	reachLeast = time.Second
)

func newDemand(e *Engine, dialer Dialer) *demand {
	d := &demand{e: e, dialer: dialer, wide: 1}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.try = func(p *peer, pause time.Duration) { d.all.Go(func() { d.attempts(p, pause) }) }
	return d
}

// end gives up the attempts in progress. The engine is closed.
func (d *demand) end() {
	d.cancel()
	d.dialer.Close()
	d.all.Wait()
}

// need starts to make a connection, if there is none. The lock is held.
func (e *Engine) need(p *peer) {
	if d := e.demand; d != nil && d.want(p) {
		d.ask(p, 0)
	}
}

// want marks a link as needing a connection, and reports whether it has none.
func (d *demand) want(p *peer) bool {
	if p.dead || d.e.isClosed {
		return false
	}
	if !p.wanted {
		p.wanted, p.quiet = true, 0
		p.sayEnded()
	}
	return p.link == nil
}

// ask dials a lower rank, or sends a higher one dial requests, until there is a connection or none is
// needed any more. giveUpWaiting marks a rank that does not answer lost. The lock is held.
func (d *demand) ask(p *peer, pause time.Duration) {
	if p.asking {
		return
	}
	p.asking, p.quiet = true, 0
	d.try(p, pause)
}

func (d *demand) attempts(p *peer, pause time.Duration) {
	try := d.dial
	if p.rank > d.e.me {
		try = d.request
	}
	for ; ; pause = longer(pause) {
		if pause > 0 {
			select {
			case <-d.ctx.Done():
			case <-time.After(pause/2 + rand.N(pause)):
			}
		}
		ctx, cancel := context.WithTimeout(d.ctx, attemptFor)
		err := try(ctx, p)
		cancel()
		if d.asked(p, err) {
			return
		}
	}
}

// longer returns the pause after the next attempt.
func longer(pause time.Duration) time.Duration {
	return min(max(2*pause, attemptPause), attemptRest)
}

func (d *demand) dial(ctx context.Context, p *peer) error {
	l, err := d.dialer.Dial(ctx, p.rank)
	if err == nil {
		d.e.Came(p.rank, l)
	}
	return err
}

func (d *demand) request(ctx context.Context, p *peer) error {
	lost, err := d.dialer.Request(ctx, p.rank)
	if err != nil {
		return err
	}
	d.answered(p, lost)
	return nil
}

// answered handles the answer to a request: why this rank is lost for that one, nil if a link will come.
func (d *demand) answered(p *peer, lost *backend.Fault) {
	e := d.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if p.quiet = 0; lost != nil {
		e.onLoss(p.rank, e.me, lost)
	}
}

// asked handles the end of an attempt, and reports whether it was the last one.
func (d *demand) asked(p *peer, err error) (over bool) {
	e := d.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if over = e.isClosed || p.link != nil || p.dead || p.said; over {
		p.asking = false
		return true
	}
	p.why = err
	lost := d.dialer.NotListening(err) && e.judges(p.rank)
	if d.dialer.Refused(err) {
		p.failed += refusalCosts
		lost = lost || p.failed > attemptsMost
	}
	if lost {
		e.suspect(p.rank, "rank %d (%v) cannot be reached: %v", p.rank, e.cfg.Peers[p.rank], err)
		e.handleLosses()
		p.asking = false
		return true
	}
	return false
}

// Requested answers a request of a lower rank to dial it. It returns why that rank is lost for this one,
// and false if this rank has left, and does not answer.
func (e *Engine) Requested(rank int) (lost *backend.Fault, answer bool) {
	if rank < 0 || rank >= e.me {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if lost = e.losses[rank]; lost == nil {
		e.need(e.peers[rank])
	}
	return lost, !e.isClosed
}

// Came takes a new link.
func (e *Engine) Came(rank int, l Link) {
	d, p := e.demand, e.peers[rank]
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := e.losses[rank] != nil
	if e.isClosed || p.link != nil || p.said || p.dead && !lost {
		l.Close()
		return
	}
	p.dead, p.fresh, p.broken = false, false, nil // not what the last link has left
	wanted := p.wanted
	p.up(l)
	if lost { // it does not know
		e.sendLost(p, rank)
		p.cut()
		return
	}
	p.fresh, p.quiet, p.mute = true, 0, 0
	if !wanted { // the other end has asked for it
		p.sayEnded()
	}
	if n, err := l.Write(&frame.Header{Kind: frame.Heartbeat}, nil, 0); err != nil || n < frame.HeaderSize { // a new link has room for it
		p.again()
		return
	}
	if e.parted {
		p.sayGoodbye()
	}
	if d.hub == e.me {
		e.greet(p)
	}
	e.wakeLeader() // to listen to it
}

// confirmed notes that the other end has the link too.
//
// Invariant: what goes over a link that may end before, and be made again, has no tokens of that link. So mem is
// set here.
func (p *peer) confirmed() {
	p.fresh = false
	if m, ok := p.link.(interface{ Memory() *memlink.Link }); ok {
		p.mem = m.Memory()
	}
}

// taken is called when the other end has taken the connection.
func (p *peer) taken() {
	p.confirmed()
	p.quiet, p.failed = 0, 0
	p.flush()
	p.e.wakeLeader()
}

// again is called when a connection ends that the other end has not taken: nothing was sent.
func (p *peer) again() {
	e, d := p.e, p.e.demand
	p.link.Close()
	p.link, p.fresh, p.broken = nil, false, nil
	p.in.Left, p.in.Head.Kind = 0, 0
	if p.gone {
		e.leftUnseen(p)
		return
	}
	if p.failed++; p.failed > attemptsMost {
		e.suspect(p.rank, "rank %d (%v) cannot be reached: %d links with it have ended before they were confirmed", p.rank, e.cfg.Peers[p.rank], p.failed)
		return
	}
	d.ask(p, attemptPause)
}

// giveUpWaiting is called once each tick: it takes ranks for lost that were asked for a connection, and have
// not answered.
func (e *Engine) giveUpWaiting() {
	d := e.demand
	if d == nil {
		return
	}
	for _, p := range e.peers {
		if p == nil || !p.wanted || p.link != nil || p.dead || p.said {
			continue
		}
		p.silent()
		if !p.asking { // it may come by itself
			if p.quiet >= comeTicks {
				d.ask(p, 0)
			}
			continue
		}
		if p.quiet <= e.life.reach || e.life.limit < 0 || e.parted {
			continue
		}
		why := "no answer"
		if p.why != nil {
			why = p.why.Error()
		}
		e.suspect(p.rank, "rank %d (%v) could not be reached for %v: %s%s", p.rank, e.cfg.Peers[p.rank], max(e.life.limit, reachLeast), why, p.stopped())
	}
	d.askMore()
}
