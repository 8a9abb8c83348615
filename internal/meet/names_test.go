package meet

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/names"
)

// withNames makes this process's resolver ask a server that knows no names yet.
func withNames(t *testing.T) *names.Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, before := names.Serve(conn), resolver
	resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		resolver = before
		s.Close()
	})
	return s
}

// bothMeet starts the two ranks of a job that meet at an address, and returns their ends.
func bothMeet(ctx context.Context, address string) chan error {
	ends := make(chan error, 2)
	for r := range 2 {
		go func() {
			m, err := Join(ctx, rankOf(r, 2), address, 0, member(r))
			if err == nil {
				err = m.Confirm(ctx, ready)
			}
			ends <- err
		}()
	}
	return ends
}

// Rank 0's name becomes known after both ranks have asked for it, first as that of a machine which is gone.
func TestRanksWaitUntilNameOfRankZeroIsKnown(t *testing.T) {
	const name = "job-0.service.cohort-test"
	s := withNames(t)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, free, _ := net.SplitHostPort(port.Addr().String())
	port.Close()
	ctx := limit(t)
	ends := bothMeet(ctx, name+".:"+free)
	asked := func(n int) { // both ranks ask once in every round
		for want := s.Asked(name) + n; s.Asked(name) < want; time.Sleep(time.Millisecond) { // poll
			if ctx.Err() != nil {
				t.Fatal("the ranks do not ask again")
			}
		}
	}
	asked(6)
	s.Set(name, netip.MustParseAddr("192.0.2.1")) // of TEST-NET-1: nobody has it
	asked(3)
	s.Set(name, loopback)
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// Rank 0's name has an IPv6 address only.
func TestNameOfRankZeroIsIPv6(t *testing.T) {
	const name = "job-0.six.cohort-test"
	six := netip.MustParseAddr("::1")
	port, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6 loopback address: %v", err)
	}
	_, free, _ := net.SplitHostPort(port.Addr().String())
	port.Close()
	withNames(t).Set(name, six)
	ctx := limit(t)
	ends := bothMeet(ctx, name+".:"+free)
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// A name that stays unknown is an error of every rank at its deadline, which says what the server has answered.
func TestUnknownNameOfRankZeroIsTimeout(t *testing.T) {
	withNames(t)
	for r := range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Join(ctx, rankOf(r, 2), "nobody.cohort-test.:7000", 0, member(r))
		has(t, err, backend.ErrTimeout, "nobody.cohort-test.", "no such host")
	}
}
