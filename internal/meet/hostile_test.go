package meet

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

// hostile returns what an unauthenticated peer sends in its nth attempt: random bytes, a truncated hello,
// the hello of another job, a random proof, or a recorded handshake.
func hostile(n int, recorded []byte) []byte {
	random := make([]byte, rand.IntN(100))
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	switch n % 6 {
	case 0:
		return random
	case 1:
		return goodHello()[:rand.IntN(helloSize)]
	case 2:
		b := goodHello()
		b[8+rand.IntN(8)] ^= 1 << rand.IntN(8)
		return append(b, random...)
	case 3:
		return append(goodHello(), random...)
	case 4:
		b := slices.Clone(recorded)
		b[rand.IntN(len(b))] ^= byte(n/6) % 2
		return b
	}
	return append(goodHello(), goodHello()...)
}

// TestHostileConnectionsAreRefused makes 10 000 hostile connections, 100 000 with COHORT_HOSTILE=1: none is accepted, a
// rank that connects among them is, and the goroutines and descriptors they leave are counted.
func TestHostileConnectionsAreRefused(t *testing.T) {
	number, batch := 10_000, 50
	if os.Getenv("COHORT_HOSTILE") == "1" {
		number = 100_000
	} else if testing.Short() {
		number = 1000
	}
	a, b := net.Pipe()
	client := &tape{Conn: a}
	if _, _, err1, err2 := shakeHands(client, b, identity(1), 2, Peer, identity(2)); err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	recorded := client.wrote.Bytes()
	l := listen(t, identity(2), 0)
	goroutines, files := runtime.NumGoroutine(), leak.Files()
	for begin := 0; begin < number; begin += batch {
		var all sync.WaitGroup
		for n := begin; n < begin+batch; n++ {
			all.Go(func() {
				c, err := net.Dial("tcp", l.Addrs()[0].String())
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				c.(*net.TCPConn).SetLinger(0) // or the ports would run out: each is held for a minute
				c.Write(hostile(n, recorded))
				c.(*net.TCPConn).CloseWrite()
				got, _ := io.Copy(io.Discard, c)
				if got > replySize {
					t.Errorf("an unauthenticated peer gets %d bytes", got)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			return
		}
	}
	ctx := limit(t)
	c, err := Dial(ctx, identity(1), l.Addrs(), 2, Peer)
	if err != nil {
		t.Fatal(err)
	}
	// The first accepted connection is the rank's.
	s, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if s.RemoteAddr().String() != c.LocalAddr().String() {
		t.Error("an unauthenticated peer was accepted")
	}
	c.Close()
	s.Close()
	if err := errors.Join(leak.Above("descriptors", leak.Files, files), leak.Above("goroutines", runtime.NumGoroutine, goroutines)); err != nil {
		t.Fatal(err)
	}
	refusedAtLeast(t, l, number)
	refused := l.refusals()
	if total := refused.total(); total != number {
		t.Errorf("%d connections, %d refused: %s", number, total, l.Report())
	}
}

// TestUnauthenticatedPeerAllocatesLittle measures how much an unauthenticated peer can make a process allocate: it
// sends a whole hello, and no proof.
func TestUnauthenticatedPeerAllocatesLittle(t *testing.T) {
	id := identity(2)
	say := append(goodHello(), make([]byte, proofSize)...)
	var before, after runtime.MemStats
	const times = 1000
	runtime.ReadMemStats(&before)
	for range times {
		if c, _ := Server(t.Context(), &bytesConn{say: say, then: io.EOF}, id); c != nil {
			t.Fatal("accepted")
		}
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / times
	t.Logf("%d bytes for each", per)
	if per > 16<<10 {
		t.Errorf("an unauthenticated peer costs %d bytes", per)
	}
}
