//go:build linux || darwin

package tcp

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// dialer is the engine.Dialer: it makes connections when two ranks first need one. A request to dial goes
// over its own connection.
type dialer struct {
	c   *connecting
	all sync.WaitGroup // the goroutines that accept connections
}

// acceptFor is how long an accepted connection has to become ready.
const acceptFor = 5 * time.Second

// Serve implements engine.Dialer.
func (d *dialer) Serve(ctx context.Context, e *engine.Engine) {
	d.all.Go(func() {
		for ctx.Err() == nil {
			w, err := d.c.l.Accept(ctx)
			if err != nil { // no descriptor is free: the dialing rank tries again
				continue
			}
			d.all.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, acceptFor)
				defer cancel()
				if w.Purpose == meet.DialRequest {
					answer(ctx, e, w)
				} else if l, err := d.c.ready(ctx, w); err == nil {
					e.Came(w.Rank, l)
				}
			})
		}
	})
}

// Close implements engine.Dialer.
func (d *dialer) Close() {
	d.c.l.Close()
	d.all.Wait()
}

// NotListening implements engine.Dialer.
func (d *dialer) NotListening(err error) bool { return errors.Is(err, meet.ErrNotListening) }

// Refused implements engine.Dialer.
func (d *dialer) Refused(err error) bool {
	_, ok := errors.AsType[*meet.Refusal](err)
	return ok
}

// Dial implements engine.Dialer.
func (d *dialer) Dial(ctx context.Context, rank int) (engine.Link, error) {
	m := &d.c.members[rank]
	w, err := meet.Dial(ctx, d.c.id.Toward(m), m.Addrs, rank, meet.Peer)
	if err != nil {
		return nil, err
	}
	return d.c.ready(ctx, w)
}

// Request implements engine.Dialer.
func (d *dialer) Request(ctx context.Context, rank int) (*backend.Fault, error) {
	m := &d.c.members[rank]
	w, err := meet.Dial(ctx, d.c.id.Toward(m), m.Addrs, rank, meet.DialRequest)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	var lost []byte
	if err := w.Agree(ctx, &lost); err != nil || lost == nil {
		return nil, err
	}
	return backend.DecodeFault(lost), nil
}

// answer answers a dial request: why this rank has declared the asking one lost (Fault.Encode), or nil
// if a connection is being made.
func answer(ctx context.Context, e *engine.Engine, w *meet.Conn) {
	defer w.Close()
	why, known := e.Requested(w.Rank)
	if !known {
		return
	}
	var lost []byte
	if why != nil {
		lost = why.Encode(4 << 10)
	}
	_ = w.Agree(ctx, lost)
}
