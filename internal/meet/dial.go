package meet

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
	connectTimeout = 2 * time.Second // of an attempt at one address
	firstPause     = 5 * time.Millisecond
	longestPause   = 500 * time.Millisecond
)

// ErrNotListening is what an error of Dial wraps if the machines at all addresses answer that no process
// listens there.
var ErrNotListening = errors.New("no process listens")

// Dial connects to a rank; both sides prove their identity. The addresses are tried in order. Ranks on
// separate networks can have the same address, which the handshake detects.
//
// A handshake that was too slow, or dropped for others, is tried again until ctx ends. If no process
// listens, Dial fails at once with ErrNotListening, and if another one does, with a *Refusal. If ctx
// ended, the error wraps backend.ErrTimeout or backend.ErrCanceled.
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
	patient bool // the other end may not listen yet; the Launcher does before it starts ranks
}

func (d *dialing) run(ctx context.Context) (*Conn, error) {
	pause, last := firstPause, error(nil)
	for {
		conn, retry, err := d.tryAll(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			if last == nil { // else it is more precise than a timeout
				last = err
			}
			return nil, ended(ctx, "connecting to %s: %v", who(d.to), last)
		}
		if !retry {
			return nil, fmt.Errorf("connecting to %s: %w", who(d.to), err)
		}
		last = err
		// All ranks begin at once: pauses of random length keep them from coming back at once.
		rest(ctx, pause/2+rand.N(pause))
		pause = min(2*pause, longestPause)
	}
}

// tryAll tries every address once, and reports whether it may succeed later.
func (d *dialing) tryAll(ctx context.Context) (conn *Conn, retry bool, err error) {
	addrs, err := d.find(ctx)
	if err != nil {
		return nil, d.patient, err
	}
	all, silent := errors.New("it has no address"), 0
	for i, a := range addrs {
		conn, err := d.one(ctx, a)
		if err == nil {
			return conn, false, nil
		}
		if i == 0 {
			all = err
		} else {
			all = fmt.Errorf("%w; %w", all, err) // in one line, unlike errors.Join
		}
		if refusal, ok := errors.AsType[*Refusal](err); ok {
			stale := d.id.Replaced && d.patient && refusal.Reason == WrongJob // the address was that of a process which has ended
			retry = retry || !refusal.lasting() || stale
		} else if op, ok := errors.AsType[net.Error](err); ok {
			retry = retry || d.patient || op.Timeout()
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			silent++
		}
	}
	if silent > 0 && silent == len(addrs) {
		all = fmt.Errorf("%w: %w", ErrNotListening, all)
		if d.to == Launcher {
			retry, all = false, fmt.Errorf("%w; the launcher listens while the job runs: start the ranks in its network namespace", all)
		}
	}
	return nil, retry, all
}

// one tries one address.
func (d *dialing) one(ctx context.Context, a netip.AddrPort) (*Conn, error) {
	dialer := net.Dialer{Timeout: connectTimeout}
	c, err := dialer.DialContext(ctx, "tcp", a.String())
	if err != nil {
		return nil, err
	}
	// If no process listens at an ephemeral port, a connection to it can have that port as its source.
	if c.LocalAddr().String() == c.RemoteAddr().String() {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: syscall.ECONNREFUSED}
	}
	return Client(ctx, c, d.id, d.to, d.purpose)
}

// rest waits for a time, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
