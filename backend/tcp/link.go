//go:build linux || darwin

package tcp

import (
	"io"
	"slices"

	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
)

const (
	readSize  = 64 << 10 // of a link's buffer
	readTurns = 8        // system calls on one link before the others have their turn
	joinMax   = 2 << 10  // payloads up to this are copied behind their header, longer ones gathered
	corkMax   = 16 << 10 // bytes of frames that a link keeps back
)

// link is a connection to another rank: an engine.Link over a socket, with or without TLS.
//
// Received bytes are read into rbuf and parsed there. While a payload is arriving, its next bytes are read
// straight to where they belong, with rbuf behind for what follows.
type link struct {
	socket
	bytes stream   // to the peer: the socket, or tls
	tls   *secured // nil without TLS
	enc   frame.Encoder
	dec   frame.Decoder
	sums  bool // payloads are sent with their checksums

	rbuf   []byte
	r0, r1 int    // rbuf[r0:r1] has been read and not looked at
	sum    uint32 // of the payload, as far as it has arrived, if it is checked

	ending bool   // the stream is to end once it is written
	corked []byte // frames that wait for the next one, with room for it
	whead  [frame.HeaderSize]byte
}

// A stream reads into two slices, one after the other, and writes two. Either may be empty. It never waits.
type stream interface {
	read(a, b []byte) (int, error)
	write(a, b []byte) (int, error)
}

// use prepares a link for its socket.
func (l *link) use(sock socket) {
	l.socket, l.bytes, l.rbuf = sock, sock, make([]byte, readSize)
	l.corked = make([]byte, 0, frame.HeaderSize+joinMax)
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
	if l.r0 > 0 {
		l.r0, l.r1 = 0, copy(l.rbuf, l.rbuf[l.r0:l.r1])
	}
	var dst []byte
	room := l.rbuf[l.r1:]
	if a.Left > 0 && len(a.Dst) > 0 { // and rbuf is empty
		if dst = a.Dst; len(dst) < a.Left {
			room = nil
		}
	}
	if n, err = l.bytes.read(dst, room); n <= 0 {
		return n, false, err
	}
	k := min(n, len(dst))
	l.check(a, dst[:k])
	a.Dst, a.Left, l.r1 = a.Dst[k:], a.Left-k, l.r1+n-k
	return n, n == len(dst)+len(room), err
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
	head := l.corked
	if off == 0 {
		l.encode(h, body)
	}
	if off >= frame.HeaderSize {
		body = body[off-frame.HeaderSize:]
	} else if head = append(head, l.whead[off:]...); len(body) <= joinMax {
		head, body = append(head, body...), nil
	}
	n, err := l.bytes.write(head, body)
	if n = off + l.uncorked(n); n == 0 {
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

// uncorked notes that n bytes have been written, and returns how many of them are not of what was kept
// back.
func (l *link) uncorked(n int) int {
	k := min(max(n, 0), len(l.corked))
	l.corked = l.corked[:copy(l.corked, l.corked[k:])]
	return max(n, 0) - k
}

// Cork implements engine.Corker.
func (l *link) Cork(h *frame.Header, body []byte) bool {
	if len(body) > joinMax || len(l.corked)+frame.HeaderSize+len(body) > corkMax {
		return false
	}
	l.encode(h, body)
	l.corked = slices.Grow(l.corked, frame.HeaderSize+len(body)+frame.HeaderSize+joinMax)
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
	if l.tls == nil {
		return moved, nil
	}
	did, err := l.tls.push()
	if l.ending && !l.tls.keeps() {
		l.finish()
	}
	return moved || did, err
}

// EagerMax implements engine.Link.
func (l *link) EagerMax() int { return engine.EagerMax }

// Hidden implements engine.Link.
func (l *link) Hidden() bool { return l.tls != nil && l.tls.more }

// Finish implements engine.Link. If the end of the TLS stream finds no room, Flush writes it and ends the socket.
func (l *link) Finish(bool) {
	if l.ending = l.tls != nil && !l.tls.finish(); !l.ending {
		l.finish()
	}
}
