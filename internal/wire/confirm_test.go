package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// met runs the rendezvous of n ranks, and returns the results of the coordinator and of each rank.
func met(ctx context.Context, t *testing.T, coordinator, n int) (at outcome, ranks map[int]*Conn) {
	t.Helper()
	p := hold(ctx, t, coordinator, n)
	joining := map[int]chan outcome{}
	for r := range n {
		if r != coordinator {
			joining[r] = p.rank(ctx, r)
		}
	}
	at = <-p.result
	ranks = map[int]*Conn{}
	for r, c := range joining {
		got := <-c
		if got.err != nil {
			t.Fatalf("rank %d: %v", r, got.err)
		}
		ranks[r] = got.conn
		t.Cleanup(func() { got.conn.Close() })
	}
	if at.err != nil {
		t.Fatal(at.err)
	}
	t.Cleanup(func() {
		for _, c := range at.conns {
			if c != nil {
				c.Close()
			}
		}
	})
	return at, ranks
}

// TestConfirmFailsOnAllRanks lets one rank end or fail while the ranks connect to each other. The others are
// connected already, or wait for a connection that does not come.
func TestConfirmFailsOnAllRanks(t *testing.T) {
	const n, odd = 4, 2
	blocked := func(ctx context.Context) error { <-ctx.Done(); return errors.New("no connection came") }
	ready := func(context.Context) error { return nil }
	for _, c := range []struct {
		name    string
		odd     func(context.Context) error // what rank 2 does to connect; nil: it ends
		others  func(context.Context) error
		is      error
		message []string
	}{
		{"all", ready, ready, nil, nil},
		{"one ends, others wait for it", nil, blocked, backend.ErrPeerLost, []string{"rank 2", "ended before all ranks of the job were connected"}},
		{"one ends, others are connected", nil, ready, backend.ErrPeerLost, []string{"rank 2", "ended before all ranks"}},
		{"one cannot connect", func(context.Context) error { return errors.New("no road to rank 0") }, blocked,
			backend.ErrInit, []string{"rank 2", "no road to rank 0"}},
		{"one cannot connect, others are connected", func(context.Context) error {
			return &backend.Fault{Sentinel: backend.ErrInit, Text: "no road to rank 0"}
		}, ready, backend.ErrInit, []string{"rank 2", "no road to rank 0"}},
	} {
		for _, coordinator := range []int{0, Launcher} {
			t.Run(fmt.Sprint(c.name, " ", coordinator), func(t *testing.T) {
				ctx := limit(t)
				at, ranks := met(ctx, t, coordinator, n)
				results := map[int]chan error{}
				for r, conn := range ranks {
					result := make(chan error, 1)
					results[r] = result
					connect := c.others
					if r == odd {
						if connect = c.odd; connect == nil {
							conn.Close()
							result <- nil
							continue
						}
					}
					go func() { result <- conn.Confirm(ctx, connect) }()
				}
				var own func(context.Context) error
				if coordinator == 0 {
					own = c.others
				}
				check := func(who string, err error) {
					if c.is == nil && err == nil {
						return
					}
					if !errors.Is(err, c.is) {
						t.Errorf("%s: %v, want %v", who, err, c.is)
						return
					}
					for _, text := range c.message {
						if !strings.Contains(err.Error(), text) {
							t.Errorf("%s: %v does not say %q", who, err, text)
						}
					}
				}
				check("coordinator", Oversee(ctx, at.members, at.conns, own))
				for r, result := range results {
					if err := <-result; r != odd || c.odd != nil && c.is == nil {
						check(fmt.Sprint("rank ", r), err)
					} else if c.odd != nil && err == nil {
						t.Errorf("rank %d could not connect and has no error", r)
					}
				}
			})
		}
	}
}

// TestConfirmFailsWhenCoordinatorEnds has the coordinator end before all ranks are connected.
func TestConfirmFailsWhenCoordinatorEnds(t *testing.T) {
	ctx := limit(t)
	at, ranks := met(ctx, t, Launcher, 3)
	for _, c := range at.conns {
		c.Close()
	}
	for r, conn := range ranks {
		err := conn.Confirm(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "coordinator") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestConfirmEndsAtDeadline has a rank that never connects: the others end with their contexts.
func TestConfirmEndsAtDeadline(t *testing.T) {
	ctx := limit(t)
	at, ranks := met(ctx, t, Launcher, 2)
	short, cancel := context.WithCancel(ctx)
	go func() { _ = Oversee(ctx, at.members, at.conns, nil) }()
	connected := make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- ranks[0].Confirm(short, func(context.Context) error { close(connected); return nil })
	}()
	<-connected
	cancel()
	if err := <-result; !errors.Is(err, backend.ErrCanceled) {
		t.Errorf("%v, want %v", err, backend.ErrCanceled)
	}
	ranks[1].Close()
}
