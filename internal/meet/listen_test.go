package meet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// listen starts a listener of an identity on loopback, with so many handshakes at once, if not 0.
func listen(t testing.TB, id *Identity, pending int) *Listener {
	t.Helper()
	l, err := Listen(ListenConfig{Addrs: []netip.Addr{loopback}, Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	if pending > 0 {
		l.mu.Lock()
		l.most = pending
		l.mu.Unlock()
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// limit is a context that ends a test that hangs, and no other.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// connect opens a connection and sends nothing.
func connect(t testing.TB, l *Listener) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// gone waits until the other end has closed a connection.
func gone(t testing.TB, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := io.Copy(io.Discard, c); timedOut(err) {
		t.Errorf("the connection is open after a minute, %d bytes came", n)
	}
}

func TestDialAndAccept(t *testing.T) {
	l := listen(t, identity(2), 0)
	ctx := limit(t)
	var all sync.WaitGroup
	for _, r := range []int{0, 1, 3} {
		all.Go(func() {
			c, err := Dial(ctx, identity(r), l.Addrs(), 2, Peer)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			fmt.Fprintf(c, "rank %d", r)
		})
	}
	for range 3 {
		c, err := l.Accept(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(c); string(b) != fmt.Sprintf("rank %d", c.Rank) {
			t.Errorf("%q from rank %d, %v", b, c.Rank, err)
		}
		c.Close()
	}
	all.Wait()
	if r := l.Report(); r != "" {
		t.Error(r)
	}
}

// TestDialFindsRankAmongAddresses dials addresses of no process, of another rank, and of the right one.
func TestDialFindsRankAmongAddresses(t *testing.T) {
	right, wrong := listen(t, identity(2), 0), listen(t, identity(3), 0)
	nobody := listen(t, identity(3), 0)
	nobody.Close()
	addrs := []netip.AddrPort{nobody.Addrs()[0], wrong.Addrs()[0], right.Addrs()[0]}
	c, err := Dial(limit(t), identity(1), addrs, 2, Peer)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	// Without the right one it fails at once, and the error names what it found.
	_, err = Dial(limit(t), identity(1), addrs[:2], 2, Peer)
	has(t, err, syscall.ECONNREFUSED, "connecting to rank 2", "it is not rank 2", "refused")
	reason(t, err, WrongRank)
	if errors.Is(err, ErrNotListening) {
		t.Errorf("somebody else listens at one of two addresses: %v", err)
	}
	_, err = Dial(limit(t), identity(1), []netip.AddrPort{addrs[0], addrs[0]}, 2, Peer)
	if !errors.Is(err, ErrNotListening) {
		t.Errorf("nobody listens at any address: %v", err)
	}
	_, err = Dial(limit(t), identity(1), nil, 2, Peer)
	has(t, err, nil, "no address")
}

func TestDialEndsWithContext(t *testing.T) {
	// A server that closes each connection at once: it may be one that drops it for others.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				done <- n
				return
			}
			if c.Close(); n == 2 {
				cancel()
			}
			n++
		}
	}()
	_, err = Dial(ctx, identity(1), []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}, 2, Peer)
	has(t, err, backend.ErrCanceled, "connecting to rank 2", "closed early")
	l.Close()
	if n := <-done; n < 3 {
		t.Errorf("given up after %d attempts", n)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	_, err = Dial(ctx, identity(1), []netip.AddrPort{l.Addr().(*net.TCPAddr).AddrPort()}, 2, Peer)
	has(t, err, backend.ErrTimeout, "connecting to rank 2")
}

// The cause of a context is any error of the program.
func TestCauseWhoseMethodsPanicIsReplaced(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel((*fs.PathError)(nil))
	l := listen(t, identity(2), 0)
	defer l.Close()
	_, err := l.Accept(ctx)
	has(t, err, nil, "*fs.PathError panicked in io/fs.(*PathError).Error")
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	err = within(ctx, here, func() error { _, err := here.Read(make([]byte, 1)); return err })
	has(t, err, nil, "*fs.PathError panicked in io/fs.(*PathError).Error")
}

func TestAcceptEndsWithContextOrListener(t *testing.T) {
	l := listen(t, identity(2), 0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := l.Accept(ctx)
	has(t, err, context.Canceled)
	// Close also closes the connection of a rank that was not accepted, and that of an unauthenticated peer.
	c, err := Dial(limit(t), identity(1), l.Addrs(), 2, Peer)
	if err != nil {
		t.Fatal(err)
	}
	s := connect(t, l)
	l.Close()
	gone(t, c)
	gone(t, s)
	c.Close()
	_, err = l.Accept(limit(t))
	has(t, err, backend.ErrClosed)
	if r := l.Report(); r != "" {
		t.Errorf("the end of the listener counts as %s", r)
	}
	l.Close()
}

// TestRankGetsThroughCrowd fills a listener with peers that send nothing, some hundred for a few places, and a
// rank gets through.
func TestRankGetsThroughCrowd(t *testing.T) {
	const places, peers = 8, 200
	l := listen(t, identity(2), places)
	var all []net.Conn
	for range peers {
		c := connect(t, l)
		c.Write(goodHello()[:20]) // as slow ones do
		all = append(all, c)
	}
	c, err := Dial(limit(t), identity(1), l.Addrs(), 2, Peer)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, c := range all {
		c.Close()
	}
	// All were accepted before the rank, which came last, and at most so many were left.
	refusedAtLeast(t, l, peers)
	refused := l.refusals()
	if c := refused[Crowded]; c.number > 0 {
		has(t, c.first, nil, "127.0.0.1:", "too many at once", "8 handshakes were under way")
	}
	forced := refused[Crowded].number + refused[Slow].number
	if forced < peers-places {
		t.Errorf("%d of %d were dropped: %s", forced, peers, l.Report())
	}
}

// refusedAtLeast waits until a listener has refused so many connections, at least: it counts them after the
// other end has seen it.
func refusedAtLeast(t testing.TB, l *Listener, want int) {
	t.Helper()
	for ctx := limit(t); ; runtime.Gosched() {
		refused := l.refusals()
		n := refused.total()
		if n >= want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%d connections refused, want %d: %s", n, want, l.Report())
		}
	}
}

// refusals returns what a listener has refused.
func (l *Listener) refusals() refusals {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused
}

func (c *refusals) total() (n int) {
	for _, r := range c {
		n += r.number
	}
	return n
}

// TestOldestOfBusiestAddressIsDropped checks which connection is dropped: the oldest of the address with the most.
func TestOldestOfBusiestAddressIsDropped(t *testing.T) {
	l := &Listener{}
	now := time.Now()
	add := func(addr string, age time.Duration) *candidate {
		a, b := net.Pipe()
		t.Cleanup(func() { b.Close() })
		s := &candidate{conn: a, addr: netip.MustParseAddr(addr), since: now.Add(-age)}
		l.pending = append(l.pending, s)
		return s
	}
	rank := add("10.0.0.1", time.Hour)
	first := add("10.0.0.2", time.Minute)
	second := add("10.0.0.2", 30*time.Second)
	const young = -time.Hour // also when the test has run for a while
	add("10.0.0.3", young)
	add("10.0.0.3", young)
	add("10.0.0.3", young) // most, and too young
	for i, want := range []*candidate{first, rank, second} {
		l.drop()
		if slices.Contains(l.pending, want) {
			t.Errorf("drop %d removes another", i)
		}
		if !closed(want) {
			t.Errorf("drop %d leaves the connection open", i)
		}
	}
	if l.drop(); len(l.pending) != 3 {
		t.Errorf("%d connections are left, want the 3 young ones", len(l.pending))
	}
}

// closed reports whether a candidate's pipe was closed.
func closed(s *candidate) bool {
	return errors.Is(s.conn.SetDeadline(time.Time{}), io.ErrClosedPipe)
}

// TestListenerGoesOnWithoutDescriptors has a listener that gets no descriptor: it drops a handshake to free one,
// counts that, and goes on.
func TestListenerGoesOnWithoutDescriptors(t *testing.T) {
	l := listen(t, identity(2), 0)
	c := connect(t, l)
	for held := 0; held == 0; runtime.Gosched() {
		l.mu.Lock()
		if held = len(l.pending); held > 0 {
			l.pending[0].since = time.Now().Add(-grace) // its time is over
		}
		l.mu.Unlock()
	}
	l.starve(syscall.EMFILE)
	gone(t, c)
	if r := l.Report(); !strings.Contains(r, "1 × no descriptor left, first: "+syscall.EMFILE.Error()) {
		t.Error(r)
	}
	if c, err := Dial(limit(t), identity(1), l.Addrs(), 2, Peer); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if s, err := l.Accept(limit(t)); err != nil {
		t.Errorf("after that: %v", err)
	} else {
		s.Close()
	}
}

func TestRefusalsAreCounted(t *testing.T) {
	l := listen(t, identity(2), 0)
	for _, say := range []string{"GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02", "", "", string(goodHello()) + strings.Repeat("x", 24)} {
		c := connect(t, l)
		io.WriteString(c, say)
		c.CloseWrite()
		gone(t, c)
	}
	refusedAtLeast(t, l, 5)
	want := map[Reason]int{Garbage: 2, Silent: 2, WrongProof: 1}
	for reason, c := range l.refusals() {
		if c.number != want[Reason(reason)] || (c.first == nil) != (c.number == 0) {
			t.Errorf("%v: %+v", Reason(reason), c)
		}
	}
	report := l.Report()
	if !strings.HasPrefix(report, "5 connections refused: 2 × not a rank, first: handshake with 127.0.0.1:") || strings.Contains(report, "\n") {
		t.Error(report)
	}
}

func TestListenUsesPortRange(t *testing.T) {
	// A port that is taken, and its neighbors, which are most likely not.
	var first *Listener
	for first == nil {
		l := listen(t, identity(1), 0)
		if p := int(l.Addrs()[0].Port()); p < 65000 && p > 1024 {
			first = l
		}
	}
	port := first.Addrs()[0].Port()
	config := ListenConfig{Addrs: []netip.Addr{loopback}, Identity: identity(2), PortMin: port, PortMax: port}
	_, err := Listen(config)
	has(t, err, syscall.EADDRINUSE, "127.0.0.1", fmt.Sprintf("port %d", port))
	config.PortMax = port + 20
	l, err := Listen(config)
	if err != nil {
		t.Fatal(err)
	}
	if p := l.Addrs()[0].Port(); p <= port || p > port+20 {
		t.Errorf("port %d, want one of %d to %d", p, port+1, port+20)
	}
	l.Close()
	_, err = Listen(ListenConfig{Identity: &Identity{}})
	has(t, err, nil, "secret")
	_, err = Listen(ListenConfig{Identity: identity(1), Addrs: []netip.Addr{loopback, netip.MustParseAddr("192.0.2.1")}}) // RFC 5737
	has(t, err, syscall.EADDRNOTAVAIL, "192.0.2.1")
}

// TestPendingHandshakesDependOnJobSize checks how many handshakes a listener of a job allows at once.
func TestPendingHandshakesDependOnJobSize(t *testing.T) {
	for size, want := range map[int]int{4: 256, 1000: 1000, frame.MaxRanks: 1024} {
		id := identity(2)
		id.Size = size
		if l := listen(t, id, 0); l.most != want {
			t.Errorf("%d places in a job of %d ranks, want %d", l.most, size, want)
		}
	}
}
