package wire

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// TestCutOff has the first of two connections end when who dials has said all that it has to say, or as TLS begins, as
// one does that a listener drops for others: who dials tries again.
func TestCutOff(t *testing.T) {
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
	all.Go(func() {
		if w, err := l.Accept(ctx, Peer); err == nil {
			w.Close()
		}
	})
	c, err := Dial(ctx, from, []netip.AddrPort{front.Addr().(*net.TCPAddr).AddrPort()}, 2, Peer, 0)
	if err != nil {
		t.Errorf("the second connection is not made: %v", err)
	} else {
		c.Close()
	}
	cancel()
	front.Close()
	all.Wait()
	for _, r := range l.Refused() {
		if r.Reason != Silent || r.Number != 1 {
			t.Errorf("refused: %d × %v, want one that was closed early", r.Number, r.Reason)
		}
	}
}

// TestDroppedLate has a listener drop a connection for others while the proof of who dials is on its way: who dials
// must not take it for made.
func TestDroppedLate(t *testing.T) {
	certs := testTLS(t, "job.example")
	for name, ids := range map[string][2]*Identity{"plain": {identity(1), identity(2)}, "TLS": {secured(1, certs), secured(2, certs)}} {
		t.Run(name, func(t *testing.T) {
			a, b := sockets(t)
			done := make(chan error, 1)
			go func() {
				_, err := serve(t.Context(), b, ids[1], func() bool { return false })
				done <- err
			}()
			_, err := Client(t.Context(), a, ids[0], 2, Peer, 0)
			reason(t, err, Silent, "waiting to be taken; it may have dropped this connection for others")
			if r, ok := err.(*Refusal); ok && r.lasting() {
				t.Error("who dials does not try again")
			}
			has(t, <-done, net.ErrClosed)
		})
	}
}

// TestKeep checks that a listener does not drop a connection that it has told that it is taken, and does not tell one
// that it has dropped.
func TestKeep(t *testing.T) {
	l := &Listener{slots: make(chan struct{}, 2)}
	var ends [2]net.Conn
	for i := range ends {
		a, b := net.Pipe()
		defer b.Close()
		ends[i] = a
		l.pending = append(l.pending, &stranger{conn: a, addr: loopback})
	}
	first, second := l.pending[0], l.pending[1]
	if !l.keep(first) {
		t.Error("a connection that nobody has dropped is not kept")
	}
	if l.drop(0); first.dropped || !second.dropped {
		t.Errorf("dropped: the kept one %v, the other %v", first.dropped, second.dropped)
	}
	if l.keep(second) {
		t.Error("a connection that was dropped is kept")
	}
}
