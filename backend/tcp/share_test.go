//go:build linux || darwin

package tcp

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// met returns the two ends of a connection between rank 1, which dialed it, and rank 0.
func met(t *testing.T, ctx context.Context) (accepted, dialed *wire.Conn) {
	t.Helper()
	secret := wire.NewSecret()
	l, err := wire.Listen(wire.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Identity: &wire.Identity{Job: "job", Secret: secret, Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		var err error
		dialed, err = wire.Dial(ctx, &wire.Identity{Job: "job", Secret: secret, Rank: 1, Size: 2}, l.Addrs(), 0, wire.Peer, 0)
		failed <- err
	}()
	if accepted, err = l.Accept(ctx, wire.Peer); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		accepted.Close()
		dialed.Close()
	})
	return accepted, dialed
}

// TestShare checks that two ranks come to the same choice, whatever one of them cannot do, and that
// the connection is good for what follows.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		what          string
		first, second int // the lengths of rings that the two want
		reason        string
	}{
		{"both can", 4096, 4096, ""},
		{"there is not that much memory", min(1<<45, math.MaxInt/4+1), min(1<<45, math.MaxInt/4+1), "shared memory of"},
		{"the second does not take what it is given", 4096, 8192, fmt.Sprintf("want %d", nearSize(8192))},
	} {
		t.Run(c.what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			a, b := met(t, ctx)
			type result struct {
				n      *near
				reason string
				err    error
			}
			other := make(chan result)
			go func() {
				n, reason, err := share(ctx, b, c.second, false, true)
				other <- result{n, reason, err}
			}()
			n, reason, err := share(ctx, a, c.first, true, true)
			for _, r := range []result{{n, reason, err}, <-other} {
				reason := c.reason
				if !shmem.Supported {
					reason = "needs Linux"
				}
				if r.err != nil || (r.n != nil) != (reason == "") || !strings.Contains(r.reason, reason) || (r.reason == "") != (reason == "") {
					t.Errorf("link %v, reason %q, error %v, want %q", r.n, r.reason, r.err, reason)
				}
				if r.n != nil {
					defer r.n.Release()
				}
			}
			said := make(chan error, 1)
			go func() { said <- b.SendSettings(ctx, []byte("go on")) }()
			if got, err := a.ReceiveSettings(ctx, 10); err != nil || !bytes.Equal(got, []byte("go on")) {
				t.Errorf("then rank 1 says %q, %v", got, err)
			}
			if err := <-said; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReceiveSettingsEndsWithContext checks that waiting for what a rank does not say ends with the context.
func TestReceiveSettingsEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	a, b := met(t, ctx)
	ended := make(chan error)
	go func() {
		_, _, err := share(ctx, a, 4096, true, true)
		ended <- err
	}()
	if _, err := b.ReceiveSettings(ctx, 1000); err != nil { // it waits for the answer now, or is about to
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("the error is %v", err)
	}
}

func TestRingSize(t *testing.T) {
	for n := 1; n < 3000; n++ {
		size := ringSize(n)
		if size < ringLeast || size > ringMost || size&(size-1) != 0 {
			t.Fatalf("%d ranks: %d", n, size)
		}
		if all := size * n * (n - 1); all > ringsMost && size > ringLeast {
			t.Errorf("%d ranks: rings of %d, %d bytes in all", n, size, all)
		}
	}
	for n, want := range map[int]int{2: 1 << 20, 8: 1 << 20, 64: 32 << 10} {
		if got := ringSize(n); got != want {
			t.Errorf("%d ranks: %d, want %d", n, got, want)
		}
	}
}
