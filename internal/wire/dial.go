package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"syscall"
	"time"
)

const (
	connectTimeout = 2 * time.Second // of an attempt at one of several addresses
	firstPause     = 5 * time.Millisecond
	longestPause   = 500 * time.Millisecond
)

// Dial connects to a rank; both sides prove their identity. The addresses are tried in order. Ranks on
// separate networks can have the same address, which the handshake detects.
//
// A handshake that was too slow, or dropped for others, is tried again until ctx ends. If no process
// listens, or another one does, Dial fails at once. If ctx ended, the error wraps backend.ErrTimeout
// or backend.ErrCanceled.
func Dial(ctx context.Context, id *Identity, addrs []netip.AddrPort, to int, purpose Purpose) (*Conn, error) {
	d := dialing{id: id, to: to, purpose: purpose}
	d.find = func(context.Context) ([]netip.AddrPort, error) { return addrs, nil }
	return d.run(ctx)
}

// A dialing is a Dial under way.
type dialing struct {
	id      *Identity
	to      int
	purpose Purpose
	find    func(context.Context) ([]netip.AddrPort, error)
	patient bool // the other end may not listen yet
}

func (d *dialing) run(ctx context.Context) (*Conn, error) {
	if err := d.id.Check(); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", who(d.to), err)
	}
	pause, last := firstPause, error(nil)
	for {
		conn, again, err := d.round(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			if last == nil { // else it is more precise than a timeout
				last = err
			}
			return nil, ended(ctx, "connecting to %s: %v", who(d.to), last)
		}
		if !again {
			return nil, fmt.Errorf("connecting to %s: %w", who(d.to), err)
		}
		last = err
		// All ranks begin at once: pauses of random length keep them from coming back at once.
		rest(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, longestPause)
	}
}

// round tries every address once, and reports whether another round may succeed.
func (d *dialing) round(ctx context.Context) (conn *Conn, again bool, err error) {
	addrs, err := d.find(ctx)
	if err != nil {
		return nil, d.patient, err
	}
	if len(addrs) == 0 {
		return nil, false, errors.New("it has no address")
	}
	var all error // in one line, unlike that of errors.Join
	for _, a := range addrs {
		conn, err := d.one(ctx, a, len(addrs))
		if err == nil {
			return conn, false, nil
		}
		if all == nil {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err)
		}
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			again = again || !refusal.lasting()
		} else if op, ok := errors.AsType[net.Error](err); ok {
			again = again || d.patient || op.Timeout()
		}
	}
	return nil, again, all
}

// one tries one address, of several.
func (d *dialing) one(ctx context.Context, a netip.AddrPort, several int) (*Conn, error) {
	dialer := net.Dialer{}
	if several > 1 {
		dialer.Timeout = connectTimeout
	}
	c, err := dialer.DialContext(ctx, "tcp", a.String())
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return nil, fmt.Errorf("no file descriptor is left; raise the limit (ulimit -n): %w", err)
	}
	if err != nil {
		return nil, err
	}
	// If no process listens at an ephemeral port, a connection to it can have that port as its source.
	if c.LocalAddr().String() == c.RemoteAddr().String() {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: errors.New("no process listens there")}
	}
	return Client(ctx, c, d.id, d.to, d.purpose)
}

// rest waits for a time, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
}

// Refused reports whether an error of Dial means that every address refuses the connection, and would
// refuse it again.
func Refused(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.lasting() // else Dial had gone on
}

// NotListening reports whether an error of Dial means that the machines at all addresses answer and
// that no process listens there.
func NotListening(err error) bool {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if !NotListening(part) {
				return false
			}
		}
		return len(e.Unwrap()) > 0
	case interface{ Unwrap() error }:
		return NotListening(e.Unwrap())
	}
	return err == syscall.ECONNREFUSED
}
