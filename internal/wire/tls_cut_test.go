package wire

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// TestTLSCutOff has the first of two connections end as TLS begins, as one does that a listener drops for others:
// who dials tries again.
func TestTLSCutOff(t *testing.T) {
	certs := testTLS(t, "job.example")
	l := listen(t, secured(2, certs), 0)
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
				io.CopyN(d, c, proofSize)
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
	c, err := Dial(ctx, secured(1, certs), []netip.AddrPort{front.Addr().(*net.TCPAddr).AddrPort()}, 2, Peer, 0)
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
