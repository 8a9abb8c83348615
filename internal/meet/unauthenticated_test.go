package meet

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// bytesConn is a peer that sends given bytes, and counts how many of them are read.
type bytesConn struct {
	net.Conn
	say  []byte
	read atomic.Int64
	sent bytes.Buffer
	then error // after the last byte
}

func (c *bytesConn) Read(b []byte) (int, error) {
	if len(c.say) == 0 {
		return 0, c.then
	}
	n := copy(b, c.say)
	c.say = c.say[n:]
	c.read.Add(int64(n))
	return n, nil
}

func (c *bytesConn) Write(b []byte) (int, error)      { return c.sent.Write(b) }
func (c *bytesConn) Close() error                     { return nil }
func (c *bytesConn) SetDeadline(time.Time) error      { return nil }
func (c *bytesConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bytesConn) SetWriteDeadline(time.Time) error { return nil }
func (c *bytesConn) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 99} }

// goodHello is the hello of rank 1 to rank 2.
func goodHello() []byte {
	keys := identity(1).keys()
	h := hello{Purpose: Peer, From: 1, To: 2, Job: [8]byte(keys.job[:8])}
	var b [helloSize]byte
	h.encode(&b)
	return b[:]
}

// TestServerRefusesUnauthenticatedPeers sends a server wrong handshakes of many kinds, followed by as many bytes
// as it reads.
func TestServerRefusesUnauthenticatedPeers(t *testing.T) {
	change := func(at int, to byte) []byte {
		b := goodHello()
		b[at] = to
		return b
	}
	version := change(4, 1)
	for _, c := range []struct {
		name    string
		say     []byte
		more    bool // and zeros without end
		want    Reason
		text    string
		read    int64
		answers int // bytes
	}{
		{"nothing", nil, false, Silent, "waiting for the hello", 0, 0},
		{"a browser", []byte("GET / HTTP/1.1\r\n"), false, Garbage, "47 45 54 20", 16, 0},
		{"a browser and more", []byte("GET / HTTP/1.1\r\n"), true, Garbage, "47 45 54 20", 40, 0},
		{"one wrong byte", []byte{7}, false, Garbage, "07", 1, 0},
		{"TLS", []byte{0x16, 3, 1, 2, 0, 1}, false, Garbage, "begins with 16 03 01 02", 6, 0},
		{"zeros", nil, true, Garbage, "00 00 00 00", 40, 0},
		{"cut", goodHello()[:39], false, Silent, "waiting for the hello", 39, 0},
		{"its own magic", append([]byte{0xc0, 'h', 'r', '<'}, goodHello()[4:]...), false, Garbage, "begins with c0 68 72 3c", 40, 0},
		{"another version", version, true, WrongVersion, "version 1 of cohort's protocol, this process version 12", 40, 48},
		{"another version, short", version[:8], false, WrongVersion, "version 1", 8, 48},
		{"purpose 0", change(6, 0), true, WrongUse, "purpose 0", 40, 48},
		{"purpose 4", change(6, 4), true, WrongUse, "purpose 4", 40, 48},
		{"TLS or not", change(7, 2), true, Garbage, "it says 2 where it says whether it uses TLS", 40, 48},
		{"another job", change(9, goodHello()[9]+1), true, WrongJob, "", 40, 48},
		{"from nobody", change(19, 0xff), true, WrongRank, "claims to be rank -16777215", 40, 48},
		{"from itself", change(16, 2), true, WrongRank, "claims to be rank 2 and wants rank 2", 40, 48},
		{"no proof", goodHello(), false, Silent, "waiting for the proof of a peer that claims to be rank 1", 40, 48},
		{"a wrong proof", goodHello(), true, WrongProof, "claims to be rank 1", 64, 48},
	} {
		t.Run(c.name, func(t *testing.T) {
			say := slices.Clone(c.say)
			if c.more {
				say = append(say, make([]byte, 1000)...)
			}
			peer := &bytesConn{say: say, then: io.EOF}
			conn, err := Server(context.Background(), peer, identity(2))
			if conn != nil {
				t.Fatal("accepted")
			}
			reason(t, err, c.want, c.text)
			if n := peer.read.Load(); n != c.read {
				t.Errorf("read %d bytes, want %d", n, c.read)
			}
			if n := peer.sent.Len(); n != c.answers {
				t.Errorf("answered with %d bytes, want %d", n, c.answers)
			}
			if c.answers > 0 {
				var b [replySize]byte
				copy(b[:], peer.sent.Bytes())
				silent := c.want == WrongJob || c.want == WrongVersion
				if proved := !bytes.Equal(b[24:], make([]byte, 24)); proved == silent {
					t.Errorf("a refusal for %q: proved is %v", c.want, proved)
				}
			}
		})
	}
}

// TestClientRefusesFalseServers shows the same of Client.
func TestClientRefusesFalseServers(t *testing.T) {
	say := func(version uint16, a Reason) []byte {
		var b [replySize]byte
		r := reply{Version: version, Answer: a}
		r.encode(&b)
		return b[:]
	}
	for _, c := range []struct {
		name string
		say  []byte
		want Reason
		text string
		read int64
	}{
		{"closed", nil, Silent, "waiting for the answer", 0},
		{"ssh", []byte("SSH-2.0-OpenSSH_9.2\r\n"), Garbage, "53 53 48 2d", 21},
		{"an echo", goodHello(), Garbage, "begins with c0 68 72 3e", 40},
		{"a later version", say(Version+1, welcome), WrongVersion, fmt.Sprintf("version %d", Version+1), 48},
		{"another version", say(0, WrongVersion), WrongVersion, "version 0", 48},
		{"another job", say(Version, WrongJob), WrongJob, `than "job"`, 48},
		{"no proof", say(Version, welcome), WrongProof, "", 48},
		{"a refusal of nobody", say(Version, WrongRank), WrongProof, "", 48},
		{"no answer", say(Version, reasons), WrongProof, "", 48},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := &bytesConn{say: append(slices.Clone(c.say), make([]byte, 48-min(len(c.say), 48))...), then: io.EOF}
			if peer.say = c.say; c.name == "no proof" {
				peer.say = append(peer.say, make([]byte, 1000)...)
			}
			conn, err := Client(context.Background(), peer, identity(1), 2, Peer)
			if conn != nil {
				t.Fatal("accepted")
			}
			reason(t, err, c.want, c.text)
			if n := peer.read.Load(); n != c.read {
				t.Errorf("read %d bytes, want %d", n, c.read)
			}
			if n := peer.sent.Len(); n != helloSize {
				t.Errorf("sent %d bytes to a false server", n)
			}
		})
	}
}

// tape is a connection that keeps what is written to it.
type tape struct {
	net.Conn
	wrote bytes.Buffer
}

func (c *tape) Write(b []byte) (int, error) {
	c.wrote.Write(b)
	return c.Conn.Write(b)
}

// TestReplayIsRefused replays both sides of a good handshake.
func TestReplayIsRefused(t *testing.T) {
	a, b := sockets(t)
	client, server := &tape{Conn: a}, &tape{Conn: b}
	if _, _, err1, err2 := shakeHands(client, server, identity(1), 2, Peer, identity(2)); err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	conn, err := Server(context.Background(), &bytesConn{say: client.wrote.Bytes(), then: io.EOF}, identity(2))
	if reason(t, err, WrongProof, "rank 1"); conn != nil {
		t.Error("a repeated client is accepted")
	}
	conn, err = Client(context.Background(), &bytesConn{say: server.wrote.Bytes(), then: io.EOF}, identity(1), 2, Peer)
	if reason(t, err, WrongProof); conn != nil {
		t.Error("a repeated server is accepted")
	}
}

// TestFlippedBitEndsHandshake flips each bit of a handshake: never do both sides accept it.
func TestFlippedBitEndsHandshake(t *testing.T) {
	for i := range (helloSize + proofSize) * 8 {
		a, b := net.Pipe()
		_, _, err1, err2 := shakeHands(&flip{Conn: a, at: i}, b, identity(1), 2, Peer, identity(2))
		if err1 == nil || err2 == nil {
			t.Errorf("bit %d of the client flipped: %v, %v", i, err1, err2)
		}
		a.Close()
		b.Close()
	}
	for i := range (replySize + proofSize) * 8 {
		a, b := net.Pipe()
		_, _, err1, err2 := shakeHands(a, &flip{Conn: b, at: i}, identity(1), 2, Peer, identity(2))
		if err1 == nil || i < replySize*8 && err2 == nil { // the server does not learn that its last message is damaged
			t.Errorf("bit %d of the server flipped: %v, %v", i, err1, err2)
		}
		a.Close()
		b.Close()
	}
}

// flip is a connection that flips one bit of what is written.
type flip struct {
	net.Conn
	at int
}

func (c *flip) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	if c.at >= 0 && c.at < len(b)*8 {
		b[c.at/8] ^= 1 << (c.at % 8)
	}
	c.at -= len(b) * 8
	return c.Conn.Write(b)
}
