package meet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// A rendezvous has these steps. The coordinator's part in them is in coordinate.go.
//
//  1. Each rank connects to the coordinator, and sends Join with what the others must know of it (Join, JoinAt, Lead).
//  2. When all have, the coordinator sends them the Table of the ranks.
//  3. Each rank connects to the others, and sends Connected, or Refused with the reason (Confirm).
//  4. When all have sent Connected, the coordinator sends it to them, and they start.
//
// If a rank fails or ends, the coordinator sends Refused in step 2 or 4. So all ranks start, or none. Without steps 3 and 4,
// only the ranks that wait for the connection of one that has ended would notice.

// A Meeting is a rank's part in a rendezvous that it has joined.
type Meeting struct {
	Members []Member // of all ranks

	// If this process is the coordinator too, its listener, and how the rendezvous ends.
	Coordinator *Listener
	outcome     <-chan error

	conn  *Conn // to the coordinator
	beats bool  // it sends heartbeats
	lost  bool  // the connection has ended without an answer
}

// Join makes this process a rank of its job. It connects to the coordinator at address (HOST:PORT),
// which is rank to or the Launcher and may not listen yet, sends self, and waits for the other ranks.
// If this rank is rank to, it is the coordinator itself, and listens at address.
//
// If processes are replaced (Identity), a rank that loses the coordinator before all have joined looks for its replacement.
//
// Join and Confirm end when ctx does. An error at the coordinator is the same on every rank. It names the
// ranks that are missing, that joined twice, or that have another size.
func Join(ctx context.Context, id *Identity, address string, to int, self Member) (*Meeting, error) {
	host, port, err := ParseCoordinator(address)
	if err != nil {
		return nil, backend.Faultf(backend.ErrInit, "%v", err)
	}
	if to == id.Rank {
		addrs, err := CoordinatorAddrs(ctx, host)
		if err != nil {
			return nil, err
		}
		here := *id
		here.Coordinator = true
		l, err := Listen(ListenConfig{Addrs: addrs, PortMin: port, Identity: &here})
		if err != nil {
			return nil, err
		}
		return Lead(ctx, l, self)
	}
	return joinAt(ctx, id, address, to, self, func(ctx context.Context) ([]netip.AddrPort, error) {
		found, err := lookup(ctx, host)
		addrs := make([]netip.AddrPort, len(found))
		for i, a := range found {
			addrs[i] = netip.AddrPortFrom(a, port)
		}
		return addrs, err
	})
}

// Lead is Join for a rank that is the coordinator and listens already, at l.
func Lead(ctx context.Context, l *Listener, self Member) (*Meeting, error) {
	return lead(ctx, newCoordinator(l), self)
}

// JoinAt is Join with the addresses at which the coordinator, a rank, listens already.
func JoinAt(ctx context.Context, id *Identity, addrs []netip.AddrPort, to int, self Member) (*Meeting, error) {
	return joinAt(ctx, id, fmt.Sprint(addrs), to, self, func(context.Context) ([]netip.AddrPort, error) { return addrs, nil })
}

func joinAt(ctx context.Context, id *Identity, address string, to int, self Member, find func(context.Context) ([]netip.AddrPort, error)) (*Meeting, error) {
	for {
		conn, err := (&dialing{id: id, to: to, purpose: Rendezvous, patient: true, find: find}).run(ctx)
		if err != nil {
			if _, ok := errors.AsType[*backend.Fault](err); !ok {
				err = backend.Faultf(backend.ErrInit, "the coordinator at %s: %v", address, err)
			}
			return nil, err
		}
		m := &Meeting{conn: conn, beats: id.Replaced}
		if err = m.join(ctx, id, self); err == nil {
			return m, nil
		}
		if !id.Replaced || !m.lost {
			return nil, err
		}
	}
}

// lead starts the coordinator of a rendezvous, and joins there. The listener is closed when it ends.
func lead(ctx context.Context, g *coordinator, self Member) (*Meeting, error) {
	outcome, rank := make(chan error, 1), g.l.id.Rank
	a, b := net.Pipe()
	go func() {
		defer close(outcome)
		err := g.run(ctx, &Conn{Conn: b, Rank: rank})
		g.l.Close() // the next rendezvous may be at the same port
		outcome <- err
	}()
	m := &Meeting{conn: &Conn{Conn: a, Rank: rank}, Coordinator: g.l, outcome: outcome}
	if err := m.join(ctx, g.l.id, self); err != nil {
		return nil, err
	}
	return m, nil
}

// join does steps 1 and 2, once connected.
func (m *Meeting) join(ctx context.Context, id *Identity, self Member) error {
	j := joining{Size: id.Size, Member: self}
	if end, ok := ctx.Deadline(); ok {
		j.Patience = max(time.Until(end), 1)
	}
	_ = m.conn.send(frame.Join, encode(&j), tableTimeout) // an error shows in the answer
	text, err := m.answer(ctx, frame.Table, uint64(maxRefusal+id.Size*maxMember))
	if err == nil {
		m.Members, err = decodeTable(text, id.Size)
	}
	if err != nil {
		return m.end(m.failed(ctx, err, "had joined"))
	}
	return nil
}

// Confirm does steps 3 and 4. It calls connect to make this rank's connections to the others, and
// returns when the coordinator reports that all ranks have made theirs. If a rank ends, or cannot
// connect, connect's context ends, and every rank gets the same error. Confirm ends the meeting.
func (m *Meeting) Confirm(ctx context.Context, connect func(context.Context) error) error {
	connecting, cancel := context.WithCancel(ctx)
	defer cancel()
	answer := make(chan error, 1)
	go func() {
		_, err := m.answer(ctx, frame.Connected, maxRefusal)
		answer <- err
		cancel()
	}()
	err := connect(connecting)
	switch {
	case connecting.Err() != nil && ctx.Err() == nil:
		err = nil // the answer has come, and is the cause
	case err == nil:
		_ = m.conn.send(frame.Connected, nil, tableTimeout)
	default:
		if _, ok := errors.AsType[*backend.Fault](err); ok {
		} else if ctx.Err() != nil {
			err = ended(ctx, "connecting to the other ranks: %v", err)
		} else {
			err = backend.Faultf(backend.ErrInit, "%v", err)
		}
		_ = m.conn.send(frame.Refused, backend.AsFault(err).Encode(maxRefusal), tellTimeout)
		enough := time.AfterFunc(blame+tellTimeout, func() { m.conn.Close() })
		defer enough.Stop()
	}
	said := <-answer
	_, known := errors.AsType[*backend.Fault](said)
	if err == nil || known { // the coordinator's error names the cause
		err = m.failed(ctx, said, "were connected")
	}
	return m.end(err)
}

// answer waits for the coordinator's answer of step 2 or 4. A Fault comes from the coordinator, and says why
// the job fails to start. Any other error is one of the connection.
func (m *Meeting) answer(ctx context.Context, want frame.Kind, limit uint64) (text []byte, err error) {
	var kind frame.Kind
	err = within(ctx, m.conn, func() (err error) {
		for kind = frame.Heartbeat; kind == frame.Heartbeat && err == nil; {
			if m.beats {
				m.conn.SetReadDeadline(time.Now().Add(silence))
			}
			if err = ctx.Err(); err == nil { // else the new deadline may have replaced that of within
				kind, text, err = m.conn.receive(limit)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case kind == frame.Refused:
		return nil, decodeRefused(text)
	case kind != want:
		return nil, backend.Faultf(backend.ErrInternal, "the coordinator sent %q, want %q", kind, want)
	}
	return text, nil
}

// failed returns the error of a round that ended before all ranks had done what it says.
func (m *Meeting) failed(ctx context.Context, err error, what string) error {
	if _, ok := errors.AsType[*backend.Fault](err); ok || err == nil {
		return err
	}
	if ctx.Err() != nil {
		return ended(ctx, "waiting until all ranks of the job %s; the coordinator has not reported which are missing", what)
	}
	m.lost = true
	return backend.Faultf(backend.ErrPeerLost, "lost the coordinator, %s at %s, before all ranks %s: %v",
		who(m.conn.Rank), m.conn.RemoteAddr(), what, err)
}

// end closes the connection to the coordinator. If this process is the coordinator, end waits until it has
// told all ranks, and returns its error, which names the cause.
func (m *Meeting) end(err error) error {
	m.conn.Close()
	if m.outcome != nil {
		if said := <-m.outcome; said != nil {
			return said
		}
	}
	return err
}

// Close leaves the meeting.
func (m *Meeting) Close() { m.end(nil) }
