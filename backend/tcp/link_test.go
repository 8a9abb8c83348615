//go:build linux || darwin

package tcp

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/wire"
)

// peerEnd is the other end of a rank's only connection, which writes frames.
type peerEnd struct {
	net.Conn
	t   *testing.T
	enc wire.Encoder
}

func (p *peerEnd) frame(h wire.Header, body []byte) {
	p.t.Helper()
	var head [wire.HeaderSize]byte
	h.Length = max(h.Length, uint64(len(body)))
	p.enc.Encode(&head, &h)
	if _, err := p.Write(append(head[:], body...)); err != nil {
		p.t.Fatal(err)
	}
}

// single returns rank 0 of a job of 2, and the other's end of their connection.
func single(t *testing.T) (*comm, *peerEnd) {
	t.Helper()
	c, _, other := raw(t, 0)
	return c, &peerEnd{Conn: other, t: t}
}

// arrive waits until n bytes are there to be read on a link, whose engine's lock is held.
func arrive(t *testing.T, l *link, n int) {
	t.Helper()
	buf := make([]byte, n)
	for t.Context().Err() == nil {
		if k, _, _ := unix.Recvfrom(l.fd, buf, unix.MSG_PEEK); k == n {
			return
		}
	}
}

// TestBrokenLinkIsReadToTheEnd checks that a rank which has sent much, and left in good order, is not lost
// for who finds that out by a write that fails, and that what it has sent is there.
func TestBrokenLinkIsReadToTheEnd(t *testing.T) {
	c, other := single(t)
	l := c.e.links[1]
	const messages = 100
	c.e.mu.Lock()
	l.taste = wire.HeaderSize // each look takes one frame
	for range messages {
		other.frame(wire.Header{Kind: wire.Eager, Tag: 1}, nil)
	}
	other.frame(wire.Header{Kind: wire.Goodbye}, nil)
	arrive(t, l, (messages+1)*wire.HeaderSize)
	other.Close()
	l.fails(unix.EPIPE)
	l.move()
	c.e.unlock()
	for i := range messages {
		if _, err := c.Recv(patient, nil, 1, 1); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if lost, left := c.Lost(), c.Left(); len(lost) > 0 || len(left) != 1 {
		t.Errorf("%v are lost, and %v have left", lost, left)
	}
}
