//go:build linux || darwin

package tcp

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
)

// secured is a stream of TLS records through the socket. crypto/tls is given a connection that never
// waits: nothing to read is an error that it takes as passing, and keeps the part of a record that it
// has; and a write always succeeds, into a queue, which keeps the stream from taking more while it
// is long.
type secured struct {
	socket
	c     *tls.Conn
	more  bool          // the last read may have left something
	in    *bufio.Reader // what has been read from the socket and not been decrypted
	queue bytes.Buffer  // records for the socket
}

const (
	tlsRead   = 128 << 10 // of the socket at once
	tlsPiece  = 128 << 10 // taken from a writer at once
	tlsQueued = 256 << 10 // in the queue, above which nothing more is taken
)

func newSecured(c net.Conn) *secured {
	s := &secured{c: c.(*tls.Conn), more: true}
	s.in = bufio.NewReaderSize(s, tlsRead)
	return s
}

// Read reads from the socket, for in.
func (s *secured) Read(b []byte) (int, error) {
	n, err := s.socket.read(b, nil)
	switch {
	case err != nil && again(err):
		return 0, os.ErrDeadlineExceeded // crypto/tls takes it as passing
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// rawConn is the socket, for crypto/tls. The connection from which the socket was taken is closed.
type rawConn struct {
	net.Conn
	s *secured
}

func (r rawConn) Read(b []byte) (int, error)  { return r.s.in.Read(b) }
func (r rawConn) Write(b []byte) (int, error) { return r.s.queue.Write(b) }

// fill reads as much of b as there is.
func (s *secured) fill(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		k, err := s.c.Read(b[n:])
		n += k
		if err == nil {
			continue
		}
		s.more = false
		passing := errors.Is(err, os.ErrDeadlineExceeded)
		switch {
		case n > 0:
			s.more = !passing // the end is for the next call
			return n, nil
		case passing:
			return 0, errAgain
		case errors.Is(err, io.EOF):
			return 0, nil
		}
		return 0, err
	}
	s.more = true
	return n, nil
}

// read implements stream.
func (s *secured) read(a, b []byte) (n int, err error) {
	if n, err = s.fill(a); n < len(a) || err != nil {
		return n, err
	}
	k, err := s.fill(b)
	if n > 0 {
		err = nil // it comes again
	}
	return n + k, err
}

// write implements stream.
func (s *secured) write(a, b []byte) (int, error) {
	if s.queue.Len() > tlsQueued {
		if _, err := s.push(); err != nil {
			return 0, err
		}
		if s.queue.Len() > tlsQueued {
			return 0, errAgain
		}
	}
	done := 0
	for _, part := range [2][]byte{a, b} {
		n, err := s.c.Write(part[:min(len(part), tlsPiece)])
		done += n
		if err != nil {
			return done, err
		}
		if n < len(part) {
			break
		}
	}
	_, err := s.push()
	return done, err
}

func (s *secured) push() (moved bool, err error) {
	for s.keeps() {
		n, err := s.socket.write(s.queue.Bytes(), nil)
		if err != nil {
			if again(err) {
				err = nil
			}
			return moved, err
		}
		s.queue.Next(n)
		moved = true
	}
	return moved, nil
}

func (s *secured) keeps() bool { return s.queue.Len() > 0 }

// finish ends the stream properly: a third party that cuts it off cannot forge that. It reports whether the socket has
// all, or takes nothing more.
func (s *secured) finish() bool {
	if s.c.CloseWrite() != nil {
		return true
	}
	_, err := s.push()
	return err != nil || !s.keeps()
}
