//go:build linux || darwin

package tcp

import (
	"io"
	"time"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
)

const (
	readSize  = 64 << 10 // of a link's buffer
	readTurns = 8        // system calls on one link before the others have their turn
	joinMax   = 2 << 10  // payloads up to this are copied behind their header, longer ones gathered
	corkMax   = 1 << 10  // bytes of frames that a link keeps back
)

// link is a connection to another rank: an engine.Link over a socket, with or without TLS.
//
// Received bytes are read into rbuf and parsed there. While a payload is arriving, its next bytes are read
// straight to where they belong, with rbuf behind for what follows.
type link struct {
	sock  socket
	bytes stream   // to the peer: the socket, or tls
	tls   *secured // nil without TLS
	enc   *frame.Encoder
	dec   *frame.Decoder
	sums  bool // payloads are sent with their checksums

	rbuf   []byte
	r0, r1 int    // rbuf[r0:r1] has been read and not looked at
	sum    uint32 // of the payload, as far as it has arrived, if it is checked

	corked []byte // frames that wait for the next one; then they go before it
	whead  [frame.HeaderSize]byte
	join   *shortFrame // shared by all links of an engine, whose lock guards it
}

// A shortFrame is room for a frame as it is written, behind frames that were kept back.
type shortFrame [corkMax + frame.HeaderSize + joinMax]byte

// A stream reads into two slices, one after the other, and writes two. Either may be nil. It never waits.
type stream interface {
	read(a, b []byte) (int, error)
	write(a, b []byte) (int, error)
}

// use prepares a link for its socket.
func (l *link) use(sock socket) {
	l.sock, l.bytes, l.rbuf = sock, sock, make([]byte, readSize)
	l.dec.Limit = frame.MaxPayload
	if l.tls != nil {
		l.tls.socket, l.bytes = sock, l.tls
	}
}

// Read implements engine.Link.
func (l *link) Read(a *frame.Arrival) (moved bool, err error) {
	for range readTurns {
		n, full, err := l.fill(a)
		switch {
		case err != nil && again(err):
			return moved, nil
		case err != nil:
			return moved, err
		case n == 0:
			return moved, io.EOF
		}
		moved = true
		if err := l.parse(a); err != nil || !full {
			return true, err
		}
	}
	return moved, nil
}

// fill reads once. full says that there may be more.
func (l *link) fill(a *frame.Arrival) (n int, full bool, err error) {
	if want := len(a.Dst); want > 0 && a.Left > 0 { // and rbuf is empty
		if want < a.Left {
			n, err = l.bytes.read(a.Dst, nil)
			if n > 0 {
				l.landed(a, n)
			}
			return n, n == want, err
		}
		n, err = l.bytes.read(a.Dst, l.rbuf)
		if n > 0 {
			k := min(n, want)
			l.landed(a, k)
			l.r0, l.r1 = 0, n-k
		}
		return n, n == want+len(l.rbuf), err
	}
	if l.r0 > 0 {
		l.r1 = copy(l.rbuf, l.rbuf[l.r0:l.r1])
		l.r0 = 0
	}
	room := l.rbuf[l.r1:]
	n, err = l.bytes.read(room, nil)
	if n > 0 {
		l.r1 += n
	}
	return n, n == len(room), err
}

// landed counts n bytes that have been read to their place.
func (l *link) landed(a *frame.Arrival, n int) {
	l.check(a, a.Dst[:n])
	a.Dst, a.Left = a.Dst[n:], a.Left-n
}

// check takes a part of a payload into its sum.
func (l *link) check(a *frame.Arrival, b []byte) {
	if a.Head.Flags&frame.FlagSummed != 0 {
		l.sum = frame.Sum(l.sum, b)
	}
}

// parse acts on what has been read.
func (l *link) parse(a *frame.Arrival) error {
	for {
		if a.Left > 0 {
			b := l.rbuf[l.r0 : l.r0+min(a.Left, l.r1-l.r0)]
			l.check(a, b)
			a.Take(b)
			l.r0 += len(b)
			if a.Left > 0 {
				l.r0, l.r1 = 0, 0
				return nil
			}
		}
		if a.Head.Kind != 0 {
			if err := a.Head.CheckSum(l.sum); err != nil {
				return err
			}
			if err := a.End(); err != nil {
				return err
			}
		}
		if l.r1-l.r0 < frame.HeaderSize {
			if l.r0 == l.r1 {
				l.r0, l.r1 = 0, 0
			}
			return nil
		}
		if err := l.dec.Decode(&a.Head, (*[frame.HeaderSize]byte)(l.rbuf[l.r0:])); err != nil {
			a.Head.Kind = 0
			return err
		}
		l.r0 += frame.HeaderSize
		a.Left, l.sum = int(a.Head.Payload()), 0
		if err := a.Begin(); err != nil {
			return err
		}
	}
}

// Write implements engine.Link.
func (l *link) Write(h *frame.Header, body []byte, off int) (int, error) {
	if off == 0 {
		l.encode(h, body)
	}
	n, err := l.write(body, off)
	if n == 0 {
		l.enc.Undo()
	}
	if err != nil && again(err) {
		err = nil
	}
	return n, err
}

// encode makes the header of a frame, with the sum of its payload if that is wanted.
func (l *link) encode(h *frame.Header, body []byte) {
	if l.sums && len(body) > 0 {
		h.Flags |= frame.FlagSummed
		h.Sum = frame.Sum(0, body)
	}
	l.enc.Encode(&l.whead, h)
}

// write writes a frame whose header is in whead, from offset off on, and before it what was kept back:
// nothing if off is above 0. It returns how many bytes of the frame have been written.
func (l *link) write(body []byte, off int) (int, error) {
	var n int
	var err error
	switch {
	case len(l.corked) > 0:
		b := append(append(l.join[:0], l.corked...), l.whead[:]...)
		if len(body) <= joinMax {
			n, err = l.bytes.write(append(b, body...), nil)
		} else {
			n, err = l.bytes.write(b, body)
		}
		return l.uncorked(n), err
	case off >= frame.HeaderSize:
		n, err = l.bytes.write(body[off-frame.HeaderSize:], nil)
	case len(body) == 0:
		n, err = l.bytes.write(l.whead[off:], nil)
	case len(body) <= joinMax:
		n, err = l.bytes.write(append(append(l.join[:0], l.whead[off:]...), body...), nil)
	default:
		n, err = l.bytes.write(l.whead[off:], body)
	}
	return off + max(n, 0), err
}

// uncorked notes that n bytes have been written, and returns how many of them are not of what was kept
// back.
func (l *link) uncorked(n int) int {
	k := min(max(n, 0), len(l.corked))
	l.corked = l.corked[:copy(l.corked, l.corked[k:])]
	return max(n, 0) - k
}

// Cork implements engine.Corker.
func (l *link) Cork(h *frame.Header, body []byte) bool {
	if len(l.corked)+frame.HeaderSize+len(body) > corkMax {
		return false
	}
	l.encode(h, body)
	l.corked = append(append(l.corked, l.whead[:]...), body...)
	return true
}

// Holds implements engine.Link.
func (l *link) Holds() bool { return len(l.corked) > 0 || l.tls != nil && l.tls.keeps() }

// Flush implements engine.Link.
func (l *link) Flush() (moved bool, err error) {
	if len(l.corked) > 0 {
		n, err := l.bytes.write(l.corked, nil)
		if err != nil && !again(err) {
			return true, err
		}
		l.uncorked(n)
		moved = n > 0
	}
	if l.tls != nil {
		did, err := l.tls.push()
		return moved || did, err
	}
	return moved, nil
}

// EagerMax implements engine.Link.
func (l *link) EagerMax() int { return engine.EagerMax }

// Hidden implements engine.Link.
func (l *link) Hidden() bool { return l.tls != nil && l.tls.more }

// Limit implements engine.Link.
func (l *link) Limit(d time.Duration) { l.sock.limit(d) }

// Unsent implements engine.Link.
func (l *link) Unsent() int { return l.sock.unsent() }

// Finish implements engine.Link.
func (l *link) Finish(bool) {
	if l.tls != nil {
		l.tls.finish()
	}
	l.sock.finish()
}

// Close implements engine.Link.
func (l *link) Close() { l.sock.close() }
