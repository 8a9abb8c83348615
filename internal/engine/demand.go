package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
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
// Each end confirms a link and sends nothing more but a goodbye until the other has confirmed it too: a link
// that ends earlier has carried nothing that must arrive, and is made again.
//
// Every rank accepts links until it leaves, so a rank that is alive answers a request. A rank is lost for
// another one only if that one has asked it and had no answer for the heartbeat limit, or for a second if
// that is longer, or if its machine answers that no process listens (and, on the same node, if its process
// does not run: see heartbeat.go). Time that a third rank takes (to
// connect, to forward a notice, to find a loss) does not count. A rank of the same node whose process runs is
// asked for as long as the caller waits, even if it cannot answer, because it computes or has no free descriptor.
//
// The engine's lock guards what changes.
type demand struct {
	dialer Dialer
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup                     // the goroutines that make links
	try    func(p *peer, pause time.Duration) // makes the attempts of ask; a simulation has its own
}

const (
	attemptFor   = 5 * time.Second       // of one dial
	attemptPause = 20 * time.Millisecond // between two, at first
	attemptRest  = 500 * time.Millisecond

	// reachLeast is the shortest limit for the answer to a request: both ends start goroutines, compute
	// proofs, and check certificates.
	reachLeast = time.Second
)

func newDemand(e *Engine, dialer Dialer) *demand {
	d := &demand{e: e, dialer: dialer}
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

// attempts dials a lower rank, or sends a higher one dial requests, until there is a link or none is needed any more.
func (d *demand) attempts(p *peer, pause time.Duration) {
	for ; ; pause = longer(pause) {
		if pause > 0 {
			select {
			case <-d.ctx.Done():
			case <-time.After(pause/2 + rand.N(pause)):
			}
		}
		ctx, cancel := context.WithTimeout(d.ctx, attemptFor)
		err := d.attempt(ctx, p)
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

func (d *demand) attempt(ctx context.Context, p *peer) error {
	if p.rank < d.e.me {
		l, err := d.dialer.Dial(ctx, p.rank)
		if err == nil {
			d.e.Came(p.rank, l)
		}
		return err
	}
	lost, err := d.dialer.Request(ctx, p.rank)
	if err == nil {
		d.answered(p, lost)
	}
	return err
}

// answered handles the answer to a request: why this rank is lost for that one, nil if a link will come.
func (d *demand) answered(p *peer, lost *backend.Fault) {
	e := d.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.membership.Answered(p.rank); lost != nil {
		e.onLoss(p.rank, e.me, lost)
	}
}

// asked handles the end of an attempt, and reports whether it was the last one.
func (d *demand) asked(p *peer, err error) (over bool) {
	e := d.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil {
		p.lastErr = err
	}
	over = e.membership.Attempted(p.rank, err != nil && d.dialer.Refused(err), err != nil && d.dialer.NotListening(err))
	if p.trying = !over; p.linkOver() {
		p.discardFrames() // no process listens there any more
	}
	if e.lossesPending() {
		e.handleLosses()
	}
	return over
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
		e.membership.Requested(rank)
	}
	return lost, !e.membership.Closed()
}

// Came takes a new link.
func (e *Engine) Came(rank int, l Link) {
	p := e.peers[rank]
	e.mu.Lock()
	defer e.mu.Unlock()
	if take, word := e.membership.Came(rank); take {
		p.up(l)
		p.quiet, p.mute = 0, 0
		e.membership.Joined(rank)
		e.wakeLeader() // to listen to it
	} else if word != nil {
		g := newGoodbye(&peer{e: e, rank: rank, link: l}, false)
		h, body := e.frame(*word)
		g.queue(h, body, nil)
		e.part(g)
	} else {
		l.Close()
	}
}

// confirmed notes that the other end has the link too.
//
// Invariant: what goes over a link that may end before, and be made again, has no tokens of that link. So mem is
// set here.
func (p *peer) confirmed() {
	if m, ok := p.link.(interface{ Memory() *memlink.Link }); ok {
		p.mem = m.Memory()
	}
}

// taken is called when the other end has taken the connection.
func (p *peer) taken() {
	p.e.membership.Confirmed(p.rank)
	p.confirmed()
	p.quiet = 0
	p.flush()
	p.e.wakeLeader()
}
