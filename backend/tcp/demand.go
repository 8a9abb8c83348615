package tcp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// dialer is the engine.Dialer: it makes connections when two ranks first need one. A request to dial goes
// over a connection of its own.
type dialer struct {
	c      *connecting
	e      *engine.Engine
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup // the goroutines that accept connections
}

// acceptFor is how long an accepted connection has to become ready.
const acceptFor = 5 * time.Second

func newDialer(c *connecting) *dialer {
	d := &dialer{c: c}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

// Serve implements engine.Dialer.
func (d *dialer) Serve(e *engine.Engine) {
	d.e = e
	d.accept(wire.Peer, func(ctx context.Context, w *wire.Conn) {
		if m := d.c.ready(ctx, w); m.err == nil {
			d.c.note(&m)
			e.Came(m.rank, m.link)
		}
	})
	d.accept(wire.DialRequest, d.answer)
}

func (d *dialer) accept(purpose wire.Purpose, take func(context.Context, *wire.Conn)) {
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
				ctx, cancel := context.WithTimeout(d.ctx, acceptFor)
				defer cancel()
				take(ctx, w)
			})
		}
	})
}

// Close implements engine.Dialer.
func (d *dialer) Close() {
	d.cancel()
	d.c.l.Close()
	d.all.Wait()
}

// NotListening implements engine.Dialer.
func (d *dialer) NotListening(err error) bool { return wire.NotListening(err) }

// Refused implements engine.Dialer.
func (d *dialer) Refused(err error) bool { return wire.Refused(err) }

func (d *dialer) reach(ctx context.Context, rank int, purpose wire.Purpose) (*wire.Conn, error) {
	return wire.Dial(ctx, d.c.id, d.c.members[rank].Addrs, rank, purpose, 0)
}

// Dial implements engine.Dialer.
func (d *dialer) Dial(ctx context.Context, rank int) (engine.Link, error) {
	w, err := d.reach(ctx, rank, wire.Peer)
	if err != nil {
		return nil, err
	}
	m := d.c.ready(ctx, w)
	if m.err != nil {
		return nil, m.err
	}
	d.c.note(&m)
	return m.link, nil
}

// The answers to a dial request, before a text.
const (
	dialTaken byte = iota // a connection is being made
	dialLost              // the asking rank was declared lost; the text is engine.EncodeFault's
)

// Request implements engine.Dialer.
func (d *dialer) Request(ctx context.Context, rank int) (lost *backend.Fault, err error) {
	w, err := d.reach(ctx, rank, wire.DialRequest)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	said, err := w.ReceiveSettings(ctx, 1+noticeMax)
	switch {
	case err != nil:
		return nil, err
	case len(said) == 0 || said[0] > dialLost:
		return nil, fmt.Errorf("invalid answer %.20q to a dial request", said)
	case said[0] == dialLost:
		return engine.DecodeFault(said[1:]), nil
	}
	return nil, nil
}

// answer answers a dial request.
func (d *dialer) answer(ctx context.Context, w *wire.Conn) {
	defer w.Close()
	if w.Dialed {
		return
	}
	lost, answer := d.e.Requested(w.Rank)
	if !answer {
		return
	}
	text := []byte{dialTaken}
	if lost != nil {
		text = append([]byte{dialLost}, engine.EncodeFault(lost)...)
	}
	_ = w.SendSettings(ctx, text)
}
