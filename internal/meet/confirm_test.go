package meet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// TestConfirmFailsOnAllRanks lets one rank end or fail while the ranks connect to each other. The others are
// connected already, or wait for a connection that does not come.
func TestConfirmFailsOnAllRanks(t *testing.T) {
	const n, odd = 4, 2
	blocked := func(ctx context.Context) error { <-ctx.Done(); return errors.New("no connection came") }
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
				ranks := hold(ctx, t, coordinator, n).joinAll(ctx)
				errs := confirmAll(ctx, ranks, func(rank int) func(context.Context) error {
					if rank == odd {
						return c.odd
					}
					return c.others
				})
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
				for r, err := range errs {
					if r != odd || c.odd != nil {
						check(fmt.Sprint("rank ", r), err)
					}
				}
			})
		}
	}
}

// TestConfirmFailsWhenCoordinatorEnds has the coordinator end before all ranks are connected.
func TestConfirmFailsWhenCoordinatorEnds(t *testing.T) {
	ctx := limit(t)
	coordinator, end := context.WithCancel(ctx)
	ranks := hold(coordinator, t, Launcher, 3).joinAll(ctx)
	var connecting sync.WaitGroup
	connecting.Add(len(ranks))
	go func() {
		connecting.Wait()
		end()
	}()
	errs := confirmAll(ctx, ranks, func(int) func(context.Context) error {
		return func(ctx context.Context) error {
			connecting.Done()
			<-ctx.Done()
			return ctx.Err()
		}
	})
	for r, err := range errs {
		if !errors.Is(err, backend.ErrCanceled) || !strings.Contains(err.Error(), "3 of 3 ranks did not connect to the others") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestConfirmFailsWhenCoordinatorIsLost has the coordinator end without a message.
func TestConfirmFailsWhenCoordinatorIsLost(t *testing.T) {
	for _, wait := range []bool{true, false} {
		a, b := sockets(t)
		m := &Meeting{conn: &Conn{Conn: a}}
		err := m.Confirm(limit(t), func(ctx context.Context) error {
			b.Close()
			if !wait {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "coordinator") {
			t.Error(err)
		}
	}
}

// TestConfirmSaysThatContextEnded has the context of a rank end before and after it has connected.
func TestConfirmSaysThatContextEnded(t *testing.T) {
	for _, want := range []error{backend.ErrCanceled, backend.ErrTimeout} {
		for _, fails := range []bool{true, false} {
			ctx := limit(t)
			ranks := hold(ctx, t, Launcher, 2).joinAll(ctx)
			short, cancel := context.WithCancel(ctx)
			if want == backend.ErrTimeout {
				short, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
			}
			err := ranks[0].Confirm(short, func(ctx context.Context) error {
				if want == backend.ErrCanceled {
					cancel()
				}
				if fails {
					<-ctx.Done()
					return context.Cause(ctx) // as Listener.Accept does
				}
				return nil
			})
			if !errors.Is(err, want) {
				t.Errorf("connecting fails: %v: got %v, want %v", fails, err, want)
			}
			cancel()
			ranks[1].Close()
		}
	}
}

// TestConfirmEndsAtDeadline has a rank that never connects: the others end with their contexts.
func TestConfirmEndsAtDeadline(t *testing.T) {
	ctx := limit(t)
	ranks := hold(ctx, t, Launcher, 2).joinAll(ctx)
	defer ranks[1].Close()
	short, cancel := context.WithCancel(ctx)
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
}
