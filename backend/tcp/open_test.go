//go:build linux || darwin

package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/meet"
)

// TestOpenTellsOfRankThatEnds has a rank end after all ranks have met and before it has connected to the others: they
// all hear of it, also those that wait for its connection.
func TestOpenTellsOfRankThatEnds(t *testing.T) {
	const n, victim = 4, 2 // rank 3 dials it, 0 and 1 wait for it
	at := freeAddress(t)
	path := t.TempDir() + "/secret"
	secret := meet.NewSecret()
	if err := secret.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	results := make(chan error)
	for r := range n {
		if r == victim {
			go func() {
				id := &meet.Identity{Job: "job", Secret: secret, Rank: r, Size: n}
				self := meet.Member{Rank: r, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}}
				m, err := meet.Join(ctx, id, at, 0, self)
				if err == nil {
					m.Close()
				}
				results <- err
			}()
			continue
		}
		go func() {
			c, err := Open(ctx, Config{Config: backend.Config{Rank: r, Size: n, Job: "job"}, SecretFile: path, Coordinator: at})
			if err == nil {
				c.Close()
				err = errors.New("no error")
			} else if errors.Is(err, backend.ErrPeerLost) && strings.Contains(err.Error(), "rank 2 ") {
				err = nil
			}
			results <- err
		}()
	}
	for range n {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// TestNextWorldBeginsAgain has a rank be lost, fail and give up while the ranks of a next world connect, before its replacement
// joins; and one that fails again and again.
func TestNextWorldBeginsAgain(t *testing.T) {
	const n, victim = 3, 2
	secret := meet.NewSecret()
	path := t.TempDir() + "/secret"
	if err := secret.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lost := func(m *meet.Meeting) { m.Close() }
	fails := func(m *meet.Meeting) {
		_ = m.Confirm(ctx, func(context.Context) error { return errors.New("no cable") })
	}
	givesUp := func(m *meet.Meeting) {
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		_ = m.Confirm(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}
	for _, c := range []struct {
		does []func(*meet.Meeting)
		want error // of all ranks
	}{
		{[]func(*meet.Meeting){lost, fails, givesUp, fails, lost}, nil},
		{[]func(*meet.Meeting){fails, lost, fails, fails}, backend.ErrInit},
	} {
		at := freeAddress(t)
		results := make(chan error, n)
		open := func(rank, worlds int) {
			w, err := Open(ctx, Config{Config: backend.Config{Rank: rank, Size: n, Job: "job"}, SecretFile: path, Coordinator: at, Worlds: &worlds})
			if err == nil && worlds != 4 {
				err = fmt.Errorf("rank %d is in world %d, want 4", rank, worlds)
			}
			results <- err
			if w != nil {
				<-ctx.Done()
				w.Close()
			}
		}
		all.Go(func() { open(0, 4) })
		all.Go(func() { open(1, 3) })
		for _, f := range c.does {
			id := &meet.Identity{Job: "job", Secret: secret, Rank: victim, Size: n, Replaced: true}
			m, err := meet.Join(ctx, id, at, 0, meet.Member{Rank: victim, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}})
			if err != nil {
				t.Fatal(err)
			}
			f(m)
		}
		left := n - 1
		if c.want == nil {
			all.Go(func() { open(victim, 0) })
			left = n
		}
		for range left {
			if err := <-results; !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		}
	}
}

// TestRankLostBeforeItStartsJoinsAgain has rank 0 be told that it is lost, as after it was stopped for long, when all ranks of
// a next world are connected. It begins again, and the other rank comes too.
func TestRankLostBeforeItStartsJoinsAgain(t *testing.T) {
	const n = 2
	secret := meet.NewSecret()
	path, at := t.TempDir()+"/secret", freeAddress(t)
	if err := secret.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	open := func(rank int) {
		worlds := 1
		w, err := Open(ctx, Config{Config: backend.Config{Rank: rank, Size: n, Job: "job"}, SecretFile: path, Coordinator: at, Sockets: true, Worlds: &worlds})
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
			cancel()
			return
		}
		w.Close()
	}
	all.Go(func() { open(0) })
	id := &meet.Identity{Job: "job", Secret: secret, Rank: 1, Size: n, Replaced: true}
	m, err := meet.Join(ctx, id, at, 0, meet.Member{Rank: 1, Worlds: 1, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}})
	if err != nil {
		t.Fatal(err)
	}
	err = m.Confirm(ctx, func(ctx context.Context) error {
		w, err := meet.Dial(ctx, id.Toward(&m.Members[0]), m.Members[0].Addrs, 0, meet.Peer)
		if err != nil {
			return err
		}
		t.Cleanup(func() { w.Close() })
		why := backend.Faultf(backend.ErrPeerLost, "no sign of life").Encode(100)
		var head [frame.HeaderSize]byte
		w.Enc.Encode(&head, &frame.Header{Kind: frame.Lost, Tag: 0, Flags: frame.FlagSummed, Length: uint64(len(why)), Sum: frame.Sum(0, why)})
		_, err = w.Write(append(head[:], why...))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	all.Go(func() { open(1) })
	all.Wait()
}

// TestOpenEndsWhenRankDoesNotCome has a rank wait for one that does not come, until the time is up or its context ends.
func TestOpenEndsWhenRankDoesNotCome(t *testing.T) {
	path := t.TempDir() + "/secret"
	if err := meet.NewSecret().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	const short = 200 * time.Millisecond
	for _, limit := range []time.Duration{short, time.Minute} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute+short-limit)
		_, err := Open(ctx, Config{Config: backend.Config{Size: 2, Job: "job", JoinTimeout: limit}, SecretFile: path, Coordinator: freeAddress(t)})
		if !errors.Is(err, backend.ErrInit) || !strings.Contains(err.Error(), "1 of 2 ranks did not join within ") || !strings.HasSuffix(err.Error(), "ms: rank 1") || (ctx.Err() != nil) != (limit > short) {
			t.Error(err)
		}
		cancel()
	}
}

// TestConnectionOfEarlierAttemptIsRefused has rank 2 dial rank 0 for an attempt to join that rank 0 has given up. Rank 0
// listens at the same port for the next one, which succeeds.
func TestConnectionOfEarlierAttemptIsRefused(t *testing.T) {
	for _, connect := range []string{ConnectStart, ConnectDemand} {
		const n = 3
		secret := meet.NewSecret()
		path := t.TempDir() + "/secret"
		if err := secret.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		at, mine := freeAddress(t), netip.MustParseAddrPort(freeAddress(t))
		var all sync.WaitGroup
		open := func(rank int, ports string) {
			cfg := Config{Config: backend.Config{Rank: rank, Size: n, Job: "job"}, SecretFile: path, Coordinator: at, Ports: ports,
				Sockets: true, Connect: connect, Worlds: new(int)}
			w, err := Open(ctx, cfg)
			if err != nil {
				t.Errorf("rank %d: %v", rank, err)
				cancel()
				return
			}
			w.Close()
		}
		all.Go(func() { open(0, fmt.Sprint(mine.Port())) })
		id := &meet.Identity{Job: "job", Secret: secret, Rank: 2, Size: n, Replaced: true}
		earlier := &meet.Member{Listener: "of the earlier attempt", Addrs: []netip.AddrPort{mine}}
		stale, err := meet.Dial(ctx, id.Toward(earlier), earlier.Addrs, 0, meet.Peer)
		for errors.Is(err, meet.ErrNotListening) && ctx.Err() == nil {
			time.Sleep(time.Millisecond) // poll
			stale, err = meet.Dial(ctx, id.Toward(earlier), earlier.Addrs, 0, meet.Peer)
		}
		if err == nil {
			t.Error("the connection of the earlier attempt was accepted")
			stale.Close()
		} else if refusal, ok := errors.AsType[*meet.Refusal](err); !ok || refusal.Reason != meet.WrongJob {
			t.Error(err)
		}
		for rank := 1; rank < n; rank++ {
			all.Go(func() { open(rank, "") })
		}
		all.Wait()
	}
}
