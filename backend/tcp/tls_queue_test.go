//go:build linux || darwin

package tcp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/frame"
)

// under is a connection that can be exchanged beneath TLS.
type under struct{ net.Conn }

// securedEnd returns a link with TLS, the bare other end of its socket, and the TLS that reads from that. The
// socket is of a kind that takes bytes whenever some have been read.
func securedEnd(t *testing.T) (l *link, other *os.File, server *tls.Conn) {
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
	above := &under{b}
	server = tls.Server(above, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true})
	done := make(chan error, 1)
	go func() { done <- server.Handshake() }()
	below := &under{a}
	client := tls.Client(below, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := errors.Join(client.Handshake(), <-done); err != nil {
		t.Fatal(err)
	}
	s := newSecured(client)
	below.Conn = rawConn{a, s}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(ends[0], true); err != nil {
		t.Fatal(err)
	}
	other = os.NewFile(uintptr(ends[1]), "the other end")
	t.Cleanup(func() { other.Close() })
	above.Conn = fileConn{Conn: b, f: other}
	l = &link{tls: s}
	l.use(socket(ends[0]))
	return l, other, server
}

// fileConn reads from a file.
type fileConn struct {
	net.Conn
	f *os.File
}

func (c fileConn) Read(b []byte) (int, error) { return c.f.Read(b) }

// full writes until the stream takes no more.
func (s *secured) full(t *testing.T) (n int) {
	t.Helper()
	b := make([]byte, tlsPiece)
	for {
		k, err := s.write(b, nil)
		n += k
		if err != nil && again(err) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The queue of a stream that is faster than the network does not grow with what has gone through it.
func TestTLSQueueStaysShort(t *testing.T) {
	l, other, _ := securedEnd(t)
	defer l.Close()
	buf := make([]byte, 16<<10) // less than the sockets hold: the queue is never empty
	for n := l.tls.full(t); n < 16<<20; n += l.tls.full(t) {
		if _, err := other.Read(buf); err != nil {
			t.Fatal(err)
		}
	}
	if most := 4 * (tlsQueued + 2*tlsPiece); l.tls.queue.Cap() > most {
		t.Errorf("the queue has room for %d bytes, want at most %d", l.tls.queue.Cap(), most)
	}
}

// A stream ends while the socket has no room. All of it arrives, with its end, once there is room again.
func TestTLSEndsBehindItsQueue(t *testing.T) {
	l, _, server := securedEnd(t)
	defer l.Close()
	sent := l.tls.full(t)
	l.Finish(true)
	if !l.Holds() {
		t.Fatal("the link keeps nothing back")
	}
	type end struct {
		n   int64
		err error
	}
	read := make(chan end)
	go func() {
		n, err := io.Copy(io.Discard, server) // an end that TLS does not know of is an error
		read <- end{n, err}
	}()
	for l.Holds() {
		if _, err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // poll
	}
	if got := <-read; got.err != nil || got.n != int64(sent) {
		t.Errorf("%d of %d bytes have arrived, then %v", got.n, sent, got.err)
	}
}

// A waiter sleeps on the sockets while another goroutine sends more than the socket and the queue hold. It
// writes all of it when the other end reads.
func TestWaiterWritesTLSQueue(t *testing.T) {
	l, other, server := securedEnd(t)
	sleep, err := newSleeper("")
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Config{Peers: make([]engine.Peer, 2), Sleeper: sleep, Heartbeat: -1})
	e.Connect(1, l)
	w, err := e.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer unix.Shutdown(int(other.Fd()), unix.SHUT_RDWR)
	b := &backend.Bound{Timeout: time.Minute}
	waits := make(chan struct{}, 1)
	w.OnWait(func() { waits <- struct{}{} }, nil)
	var q backend.Request
	q.Begin()
	w.Irecv(&q, nil, 1, 1)
	waited := make(chan error)
	go func() { waited <- errors.Join(w.Await(b, &q), q.Err) }()
	<-waits
	const length = 1000
	var sends []*backend.Request
	for last := false; !last; last = !sends[len(sends)-1].Ready() {
		r := &backend.Request{}
		r.Begin()
		w.Isend(r, make([]byte, length), 1, 1, backend.Standard)
		sends = append(sends, r)
	}
	all := int64(len(sends) * (frame.HeaderSize + length))
	read := make(chan error)
	go func() {
		n, err := io.CopyN(io.Discard, server, all)
		if err != nil {
			err = fmt.Errorf("%d bytes of %d: %w", n, all, err)
		}
		read <- err
	}()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the waiter sleeps, and there is something to be written")
	}
	if !w.Cancel(&q) {
		t.Error("a receive that has not matched was not canceled")
	}
	w.Wake()
	if err := <-waited; !errors.Is(err, backend.ErrCanceled) {
		t.Error(err)
	}
}
