//go:build linux || darwin

package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// under is a connection that can be exchanged beneath TLS.
type under struct{ net.Conn }

// securedEnd returns a stream with TLS, its socket, and the bare other end of that: of a kind that
// takes bytes whenever some have been read.
func securedEnd(t *testing.T) (s *secured, fd, other int) {
	t.Helper()
	a, b := net.Pipe()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sheet := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, sheet, sheet, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	server := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	below := &under{a}
	client := tls.Client(below, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	if s, err = newSecured(&wire.Conn{Conn: client}); err != nil {
		t.Fatal(err)
	}
	below.Conn = rawConn{s}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(ends[1]) })
	if err := unix.SetNonblock(ends[0], true); err != nil {
		t.Fatal(err)
	}
	return s, ends[0], ends[1]
}

// full writes until the stream takes no more.
func (s *secured) full(t *testing.T) (n int) {
	t.Helper()
	b := make([]byte, tlsPiece)
	for {
		k, err := s.write(b)
		n += k
		if err != nil && again(err) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTLSQueueStaysShort checks that the queue of a stream that is faster than the network does not grow
// with what has gone through it.
func TestTLSQueueStaysShort(t *testing.T) {
	s, fd, other := securedEnd(t)
	s.attach(&link{e: &engine{}, fd: fd})
	defer sockClose(fd)
	buf := make([]byte, 16<<10) // less than the sockets hold: the queue is never empty
	for n := s.full(t); n < 16<<20; n += s.full(t) {
		if _, err := unix.Read(other, buf); err != nil {
			t.Fatal(err)
		}
	}
	if most := 4 * (tlsQueued + 2*tlsPiece); cap(s.queue) > most {
		t.Errorf("the queue has room for %d bytes, want at most %d", cap(s.queue), most)
	}
}

// TestTLSQueueWakes checks that who sleeps on the sockets hears of records that another goroutine has
// left in the queue: it has to look for room.
func TestTLSQueueWakes(t *testing.T) {
	s, fd, other := securedEnd(t)
	w, err := newEngine(0, []peer{{}, {node: 1}}, []conn{{fd: -1}, {fd: fd, over: s, enc: &wire.Encoder{}, dec: &wire.Decoder{}}}, false, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer unix.Shutdown(other, unix.SHUT_RDWR)
	if err := unix.SetNonblock(other, true); err != nil {
		t.Fatal(err)
	}
	e := w.(*comm).e
	var done flag
	waited := make(chan error)
	go func() { waited <- w.Await(&backend.Bound{Timeout: time.Minute}, &done) }()
	for e.mu.Lock(); !e.sleeping.Load(); e.mu.Lock() {
		e.unlock()
		runtime.Gosched()
	}
	for n := 0; !s.keeps(); n++ {
		if !e.sleeping.Load() {
			t.Errorf("the waiter has been woken by %d frames that went into the socket", n)
			break
		}
		e.links[1].emit(&wire.Header{Kind: wire.Broken, Length: noticeMax}, make([]byte, noticeMax), nil)
	}
	e.unlock()
	// Whether it sleeps now says nothing: woken, it may be about to sleep again. It has written the rest
	// if there is room, or it has not.
	if !drained(s, e, other) {
		t.Error("the waiter sleeps, and does not know that there is something to be written")
	}
	done.set.Store(true)
	w.Wake()
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// drained reads the other end until the stream has nothing left for the socket, and reports whether
// that came about.
func drained(s *secured, e *engine, other int) bool {
	buf := make([]byte, 64<<10)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for n := 1; n > 0; {
			n, _ = unix.Read(other, buf)
		}
		e.mu.Lock()
		left := s.keeps()
		e.unlock()
		if !left {
			return true
		}
	}
	return false
}
