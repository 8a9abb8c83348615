package node

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/internal/shmem"
)

// joining calls Join for a rank, whose error, or nil, comes from the channel.
func joining(ctx context.Context, cfg Config) <-chan error {
	result := make(chan error, 1)
	go func() {
		n, err := Join(ctx, cfg)
		if err == nil {
			n.Close()
		}
		result <- err
	}()
	return result
}

// Rank 0 has a yes of all ranks. If one of them gave up meanwhile, no rank starts, otherwise all do.
func TestRankZeroStartsAllOrNone(t *testing.T) {
	for _, late := range []bool{false, true} {
		cfg := Config{Ranks: upTo(3), Name: rand.Text()}
		l, zero := newLayout(&cfg), joining(t.Context(), cfg)
		var conns [3]*net.UnixConn
		var segs [3]*shmem.Segment
		for r := 1; r < 3; r++ {
			cfg.Rank = r
			c, err := dial(t.Context(), &cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			send(c, yes, fmt.Sprintf(hello, r, 3, os.Getpid()))
			conns[r] = c
		}
		for r := 1; r < 3; r++ {
			cfg.Rank = r
			seg, err := receive(conns[r], &cfg, l)
			if err != nil {
				t.Fatal(err)
			}
			defer seg.Close()
			segs[r] = seg
			area(seg, l, r).fill()
		}
		say(conns[1], nil)
		if late {
			conns[1].Close()
			shmem.At[control](segs[1], 0).verdict.settle(gaveUp + 1)
		}
		say(conns[2], nil)
		_, two := hear(conns[2], 0, "")
		for r, err := range map[int]error{0: <-zero, 2: two} {
			if late && (err == nil || !strings.Contains(err.Error(), "rank 1 gave up before all ranks had joined")) || !late && err != nil {
				t.Errorf("rank 1 gave up: %v; rank %d: %v", late, r, err)
			}
		}
	}
}

// A rank waits for the last word of rank 0, which does not come: the rank starts if rank 0 has decided that the job does.
// Otherwise rank 0 cannot decide that any more.
func TestRankStartsIfRankZeroDecided(t *testing.T) {
	for _, decided := range []bool{false, true} {
		for _, lost := range []bool{false, true} {
			cfg := Config{Ranks: upTo(2), Name: rand.Text()}
			ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: address(cfg.Name), Net: "unix"})
			if err != nil {
				t.Fatal(err)
			}
			l := newLayout(&cfg)
			seg, err := create(&cfg, l)
			if err != nil {
				t.Fatal(err)
			}
			ctx, giveUp := context.WithCancel(t.Context())
			cfg.Rank = 1
			one := joining(ctx, cfg)
			c, err := ln.AcceptUnix()
			if err == nil {
				_, _, _, err = readHello(t.Context(), c, &cfg)
			}
			if err != nil {
				t.Fatal(err)
			}
			say(c, nil, unix.UnixRights(seg.FD())...)
			if _, err := hear(c, 1, ""); err != nil {
				t.Fatal(err)
			}
			v := &shmem.At[control](seg, 0).verdict
			if decided {
				v.settle(started)
			}
			if lost {
				c.Close()
			} else {
				giveUp()
			}
			if err := <-one; (err == nil) != decided || (v.settle(started) == started) != decided {
				t.Errorf("decided: %v, rank 0 ended: %v; rank 1: %v, and the verdict is %d", decided, lost, err, v.settle(started))
			}
			giveUp()
			c.Close()
			ln.Close()
			seg.Close()
		}
	}
}
