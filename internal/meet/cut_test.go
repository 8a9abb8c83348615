package meet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestDialRetriesAfterDroppedConnection ends the first of two connections when the dialer has sent its last
// message, or when TLS begins, as if a listener dropped it for others. The dialer tries again.
func TestDialRetriesAfterDroppedConnection(t *testing.T) {
	certs := testTLS(t, "job.example")
	t.Run("plain", func(t *testing.T) { cutOffOnce(t, identity(1), identity(2)) })
	t.Run("TLS", func(t *testing.T) { cutOffOnce(t, secured(1, certs), secured(2, certs)) })
}

func cutOffOnce(t *testing.T, from, to *Identity) {
	l := listen(t, to, 0)
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := front.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", l.Addrs()[0].String())
			if err != nil {
				t.Error(err)
				c.Close()
				return
			}
			if n == 0 {
				io.CopyN(d, c, helloSize)
				io.CopyN(c, d, replySize)
				io.CopyN(io.Discard, c, proofSize)
				c.Close()
				d.Close()
				continue
			}
			all.Go(func() { io.Copy(d, c); d.Close() })
			all.Go(func() { io.Copy(c, d); c.Close() })
		}
	})
	ctx, cancel := context.WithCancel(limit(t))
	c, err := Dial(ctx, from, []netip.AddrPort{front.Addr().(*net.TCPAddr).AddrPort()}, 2, Peer)
	if err != nil {
		t.Fatalf("the second connection is not made: %v", err)
	}
	w, err := l.Accept(ctx)
	if err != nil {
		t.Fatalf("the second connection has not come: %v", err)
	}
	talk(t, c, w)
	c.Close()
	w.Close()
	cancel()
	front.Close()
	all.Wait()
	refusedAtLeast(t, l, 1)
	if r := l.refusals(); r[Silent].number != 1 || r.total() != 1 {
		t.Errorf("refused: %s, want one that was closed early", l.Report())
	}
}

// TestDialNoticesLateDrop has a listener drop a connection while the dialer's proof is on its way. Dial must
// not return that connection.
func TestDialNoticesLateDrop(t *testing.T) {
	certs := testTLS(t, "job.example")
	for name, ids := range map[string][2]*Identity{"plain": {identity(1), identity(2)}, "TLS": {secured(1, certs), secured(2, certs)}} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			done := make(chan error, 1)
			go func() {
				_, err := serve(t.Context(), b, ids[1], func() bool { return false })
				done <- err
			}()
			_, err := Client(t.Context(), a, ids[0], 2, Peer)
			reason(t, err, Silent, "waiting for the confirmation; it may have dropped this connection for others")
			if r, ok := err.(*Refusal); ok && r.lasting() {
				t.Error("the dialer does not try again")
			}
			has(t, <-done, net.ErrClosed)
		})
	}
}

// TestAdmittedConnectionIsNotDropped checks that a listener does not drop a connection that it has admitted,
// and does not admit one that it has dropped.
func TestAdmittedConnectionIsNotDropped(t *testing.T) {
	l := &Listener{}
	var ends [2]net.Conn
	for i := range ends {
		a, b := net.Pipe()
		defer b.Close()
		ends[i] = a
		l.pending = append(l.pending, &candidate{conn: a, addr: loopback})
	}
	first, second := l.pending[0], l.pending[1]
	if !l.remove(first) {
		t.Error("a connection that was not dropped is not kept")
	}
	l.drop()
	if closed(first) || !closed(second) {
		t.Errorf("dropped: the kept one %v, the other %v", closed(first), closed(second))
	}
	if l.remove(second) {
		t.Error("a connection that was dropped is kept")
	}
}

// before is a connection that calls a function before the dialer's second message, its proof, is sent.
type before struct {
	net.Conn
	said int
	do   func()
}

func (c *before) Write(b []byte) (int, error) {
	if c.said++; c.said == 2 {
		c.do()
	}
	return c.Conn.Write(b)
}

// TestDroppedConnectionIsNotAdmitted drops a connection just before its handshake completes: the listener does
// not confirm it.
func TestDroppedConnectionIsNotAdmitted(t *testing.T) {
	l := listen(t, identity(2), 0)
	c := &before{Conn: connect(t, l)}
	c.do = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.pending) != 1 {
			t.Errorf("%d handshakes under way, want 1", len(l.pending))
			return
		}
		l.pending = nil // dropped, and not closed yet
	}
	_, err := Client(t.Context(), c, identity(1), 2, Peer)
	reason(t, err, Silent, "waiting for the confirmation; it may have dropped this connection for others")
	refusedAtLeast(t, l, 1)
	if r := l.refusals(); r[Crowded].number != 1 || r.total() != 1 {
		t.Errorf("refused: %s", l.Report())
	}
}

// TestLateAdmissionIsAccepted delays the confirmation, also beyond the limit of a handshake: the accepting side
// has admitted the connection, and the dialer waits for that.
func TestLateAdmissionIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{0, HandshakeTimeout + time.Second, time.Minute} {
			a, b := net.Pipe()
			done := make(chan error, 1)
			go func() {
				_, err := serve(t.Context(), b, identity(2), func() bool {
					b.SetDeadline(time.Time{}) // so that it can be as late as on a slow network
					time.Sleep(wait)           // on purpose: the confirmation is late
					return true
				})
				done <- err
			}()
			_, err := Client(t.Context(), a, identity(1), 2, Peer)
			if err := errors.Join(err, <-done); err != nil {
				t.Errorf("after %v: %v", wait, err)
			}
			a.Close()
			b.Close()
		}
	})
}

// TestWaitForConfirmationEndsWithContext has an accepting side that never confirms.
func TestWaitForConfirmationEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		a, b := net.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := serve(t.Context(), b, identity(2), func() bool { <-ctx.Done(); return false })
			done <- err
		}()
		_, err := Client(ctx, a, identity(1), 2, Peer)
		has(t, err, context.DeadlineExceeded, "waiting for the confirmation")
		has(t, <-done, net.ErrClosed)
	})
}
