package meet

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cohort-hpc/cohort/internal/frame"
)

var secret = NewSecret()

// identity is that of a rank of a job of four.
func identity(rank int) *Identity { return &Identity{Job: "job", Secret: secret, Rank: rank, Size: 4} }

// sockets returns the two ends of a connection on loopback.
func sockets(t testing.TB) (dialed, accepted net.Conn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialed, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return dialed, accepted
}

// shakeHands runs both ends of a handshake.
func shakeHands(a, b net.Conn, client *Identity, to int, purpose Purpose, server *Identity) (c, s *Conn, clientErr, serverErr error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s, serverErr = Server(context.Background(), b, server)
	}()
	c, clientErr = Client(context.Background(), a, client, to, purpose)
	<-done
	return c, s, clientErr, serverErr
}

func TestHandshakeAdmitsRanksOfJob(t *testing.T) {
	launcher, zero := identity(Launcher), identity(0)
	launcher.Coordinator, zero.Coordinator = true, true
	for _, c := range []struct {
		name    string
		from    int
		server  *Identity
		purpose Purpose
	}{
		{"peers", 1, identity(2), Peer},
		{"to rank 0", 3, identity(0), Peer},
		{"from rank 0", 0, identity(3), Peer},
		{"a connection request", 0, identity(3), DialRequest},
		{"meeting at rank 0", 3, zero, Rendezvous},
		{"meeting at the launcher", 0, launcher, Rendezvous},
	} {
		for _, pipe := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				a, b := net.Pipe()
				if !pipe {
					a, b = sockets(t)
				}
				defer a.Close()
				defer b.Close()
				x, y, err1, err2 := shakeHands(a, b, identity(c.from), c.server.Rank, c.purpose, c.server)
				if err1 != nil || err2 != nil {
					t.Fatal(err1, err2)
				}
				if x.Rank != c.server.Rank || y.Rank != c.from || y.Purpose != c.purpose || x.Purpose != c.purpose || !x.Dialed || y.Dialed {
					t.Errorf("%+v\n%+v", x, y)
				}
				talk(t, x, y)
				talk(t, y, x)
			})
		}
	}
}

// talk sends a frame, and shows that only the other end of this connection takes it.
func talk(t *testing.T, from, to *Conn) {
	t.Helper()
	enc, back, dec := &from.Enc, &from.Dec, &to.Dec
	var b [frame.HeaderSize]byte
	enc.Encode(&b, &frame.Header{Kind: frame.Heartbeat})
	has(t, (&frame.Decoder{Seed: back.Seed}).Decode(new(frame.Header), &b), frame.ErrFrame, "checksum") // reflected
	go from.Write(b[:])
	var got [frame.HeaderSize]byte
	if _, err := io.ReadFull(to, got[:]); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(new(frame.Header), &got); err != nil {
		t.Error(err)
	}
}

// TestHandshakeFollowsTranscript compares a handshake with ADR 0014: it computes the keys and proofs again,
// from HMAC alone.
func TestHandshakeFollowsTranscript(t *testing.T) {
	mac := func(key []byte, parts ...[]byte) []byte {
		h := hmac.New(sha256.New, key)
		h.Write(slices.Concat(parts...))
		return h.Sum(nil)
	}
	job := sha256.Sum256([]byte("cohort tcp job\x00job\x00"))
	// RFC 5869: extract with the salt, then the first block of expand.
	key := mac(mac(job[:], secret.key[:]), []byte("cohort tcp proof\x01"))

	a, b := net.Pipe()
	result := make(chan error, 1)
	go func() {
		_, err := Server(context.Background(), b, identity(2))
		result <- err
	}()
	hello := slices.Concat([]byte{0xc0, 'h', 'r', '>', 12, 0, 2, 0}, job[:8], []byte{1, 0, 0, 0, 2, 0, 0, 0}, []byte("sixteen bytes   "))
	if _, err := a.Write(hello); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 48)
	if _, err := io.ReadFull(a, reply); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(reply[:8], []byte{0xc0, 'h', 'r', '<', 12, 0, 0, 0}) {
		t.Errorf("the reply begins with % x", reply[:8])
	}
	if want := mac(key, []byte("server\x00"), job[:], hello, reply[:24])[:24]; !bytes.Equal(reply[24:], want) {
		t.Errorf("the server proves % x, want % x", reply[24:], want)
	}
	if _, err := a.Write(mac(key, []byte("client\x00"), job[:], hello, reply[:24])[:24]); err != nil {
		t.Fatal(err)
	}
	word := make([]byte, 24)
	if _, err := io.ReadFull(a, word); err != nil {
		t.Fatal(err)
	}
	if want := mac(key, []byte("server takes it\x00"), job[:], hello, reply)[:24]; !bytes.Equal(word, want) {
		t.Errorf("the server's last word is % x, want % x", word, want)
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if len(hello)+24 != 64 {
		t.Errorf("an unauthenticated peer sends %d bytes", len(hello)+24)
	}
	a.Close()
	b.Close()
}

func TestHandshakeRefusesWrongPeers(t *testing.T) {
	with := func(rank int, f func(*Identity)) *Identity {
		id := identity(rank)
		f(id)
		return id
	}
	tls := testTLS(t, "job.example")
	for _, c := range []struct {
		name           string
		client         *Identity
		to             int
		purpose        Purpose
		server         *Identity
		atClient       Reason
		atServer       Reason
		client_, serve string
	}{
		{"secret", with(1, func(id *Identity) { id.Secret = NewSecret() }), 2, Peer, identity(2),
			WrongProof, Silent, "has the same name and another secret", "waiting for the proof of a peer that claims to be rank 1"},
		{"job", with(1, func(id *Identity) { id.Job = "jo" }), 2, Peer, identity(2), WrongJob, WrongJob, `another job than "jo"`, ""},
		{"rank", identity(1), 3, Peer, identity(2), WrongRank, WrongRank, "it is not rank 3 of 4", "claims to be rank 1 and wants rank 3; this is rank 2"},
		{"a rank too many", with(4, func(id *Identity) { id.Size = 5 }), 2, Peer, identity(2), WrongRank, WrongRank, "", "claims to be rank 4"},
		{"no coordinator", identity(1), 0, Rendezvous, identity(0), WrongUse, WrongUse, "rank 0 is not the coordinator", "rank 1"},
		{"launcher as peer", identity(1), Launcher, Peer, with(Launcher, func(id *Identity) { id.Coordinator = true }), WrongUse, WrongUse,
			"the launcher is not", "coordinator for a rank"},
		{"TLS at the client", with(1, func(id *Identity) { id.TLS = tls }), 2, Peer, identity(2), WrongTLS, WrongTLS,
			"this process uses TLS, the other uses no TLS", "claims to be rank 1, and uses TLS; this process uses no TLS"},
		{"TLS at the server", identity(1), 2, Peer, with(2, func(id *Identity) { id.TLS = tls }), WrongTLS, WrongTLS,
			"this process uses no TLS, the other uses TLS", "uses no TLS; this process uses TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := sockets(t)
			_, _, err1, err2 := shakeHands(a, b, c.client, c.to, c.purpose, c.server)
			reason(t, err1, c.atClient, c.client_)
			reason(t, err2, c.atServer, c.serve)
			if _, err := a.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the client's connection is open: %v", err)
			}
			if _, err := b.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the server's connection is open: %v", err)
			}
		})
	}
}

// TestHandshakeRejectsMisuse asks for handshakes of impossible identities.
func TestHandshakeRejectsMisuse(t *testing.T) {
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{Identity{Job: "j", Rank: 0, Size: 2}, "secret"},
		{Identity{Job: "", Secret: secret, Rank: 0, Size: 2}, "name of the job"},
		{Identity{Job: string(make([]byte, maxJob+1)), Secret: secret, Size: 2}, "1025 bytes"},
		{Identity{Job: "j", Secret: secret, Rank: 2, Size: 2}, "rank 2 of 2"},
		{Identity{Job: "j", Secret: secret, Rank: 0, Size: frame.MaxRanks + 1}, "a job of 65537"},
	} {
		a, b := net.Pipe()
		_, err := Client(context.Background(), a, &c.id, 1, Peer)
		has(t, err, nil, c.want)
		b.Close()
	}
}

// TestSlowHandshakeIsRefused sends a byte each second, or nothing. The clock is that of the test.
func TestSlowHandshakeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name        string
		first, then []byte // what is said at once, and after the answer to it byte by byte
		text        string
	}{
		{"nothing", nil, nil, "waiting for the hello"},
		{"a hello, byte by byte", nil, goodHello(), "waiting for the hello"},
		{"no proof", goodHello(), nil, "waiting for the proof of a peer that claims to be rank 1"},
		{"a proof, byte by byte", goodHello(), make([]byte, proofSize), "waiting for the proof of a peer that claims to be rank 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			start, done := time.Now(), make(chan struct{})
			go func() {
				defer close(done)
				if c.first != nil {
					if _, err := a.Write(c.first); err != nil {
						return
					}
					if _, err := io.ReadFull(a, make([]byte, replySize)); err != nil {
						return
					}
				}
				for _, x := range c.then {
					time.Sleep(time.Second) // on purpose: a slow peer
					if _, err := a.Write([]byte{x}); err != nil {
						return
					}
				}
			}()
			_, err := Server(context.Background(), b, identity(2))
			reason(t, err, Slow, c.text)
			if d := time.Since(start); d != HandshakeTimeout {
				t.Errorf("%s: refused after %v, want %v", c.name, d, HandshakeTimeout)
			}
			a.Close()
			<-done
		})
	}
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(io.Discard, b)
		}()
		start := time.Now()
		_, err := Client(context.Background(), a, identity(1), 2, Peer)
		reason(t, err, Slow, "waiting for the answer")
		if d := time.Since(start); d != HandshakeTimeout {
			t.Errorf("given up after %v, want %v", d, HandshakeTimeout)
		}
		b.Close()
		<-done
	})
}

func TestHandshakeEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := Server(ctx, b, identity(2))
		if has(t, err, context.DeadlineExceeded); time.Since(start) != time.Second {
			t.Errorf("after %v", time.Since(start))
		}
		a.Close()
	})
}

// FuzzServer sends a server arbitrary bytes. The decoders refuse what they cannot read, and no peer is
// accepted: the fuzzer does not have the secret.
func FuzzServer(f *testing.F) {
	f.Add(goodHello())
	f.Add(append(goodHello(), make([]byte, 24)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		peer := &bytesConn{say: b, then: io.EOF}
		if conn, err := Server(context.Background(), peer, identity(2)); conn != nil || err == nil || peer.read.Load() > 64 {
			t.Errorf("accepted: %v, %d bytes read", conn, peer.read.Load())
		}
	})
}

// FuzzClient does the same to a client.
func FuzzClient(f *testing.F) {
	var b [replySize]byte
	(&reply{Version: Version}).encode(&b)
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		peer := &bytesConn{say: b, then: io.EOF}
		if conn, err := Client(context.Background(), peer, identity(1), 2, Peer); conn != nil || err == nil || peer.read.Load() > replySize {
			t.Errorf("accepted: %v, %d bytes read", conn, peer.read.Load())
		}
	})
}

// FuzzHello decodes hellos and replies; those it accepts encode to the same bytes, whatever the job.
func FuzzHello(f *testing.F) {
	f.Add(goodHello())
	f.Add(make([]byte, replySize))
	f.Fuzz(func(t *testing.T, data []byte) {
		var b, again [helloSize]byte
		copy(b[:], data)
		copy(b[:4], helloMagic[:])
		binary.LittleEndian.PutUint16(b[4:], Version)
		id := identity(2)
		if h, _, text := id.decodeHello(&b, [8]byte(b[8:])); text == "" {
			if h.encode(&again); again != b {
				t.Errorf("% x\nencodes to % x", b, again)
			}
		}
		var c, more [replySize]byte
		copy(c[:], data)
		copy(c[:4], replyMagic[:])
		binary.LittleEndian.PutUint16(c[4:], Version)
		var r reply
		binary.Decode(c[:], binary.LittleEndian, &r)
		if r.encode(&more); more != c {
			t.Errorf("% x\nencodes to % x", c, more)
		}
	})
}
