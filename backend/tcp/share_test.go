//go:build linux || darwin

package tcp

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// met returns the two ends of a connection between rank 1, which dialed it, and rank 0.
func met(t *testing.T, ctx context.Context) (accepted, dialed *meet.Conn) {
	t.Helper()
	secret := meet.NewSecret()
	l, err := meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		Identity: &meet.Identity{Job: "job", Secret: secret, Size: 2}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	failed := make(chan error, 1)
	go func() {
		var err error
		dialed, err = meet.Dial(ctx, &meet.Identity{Job: "job", Secret: secret, Rank: 1, Size: 2}, l.Addrs(), 0, meet.Peer)
		failed <- err
	}()
	if accepted, err = l.Accept(ctx); err != nil {
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

// meeting returns what two ranks of this process have that have met at a coordinator, and listen there.
func meeting(t *testing.T, cfgs ...Config) (ends []*connecting) {
	t.Helper()
	secret, members := meet.NewSecret(), make([]meet.Member, len(cfgs))
	for r, cfg := range cfgs {
		id := &meet.Identity{Job: "job", Secret: secret, Rank: r, Size: len(cfgs)}
		l, err := meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Identity: id})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		var d *wakeSocket
		if shmem.Supported && !cfg.Sockets {
			if d, err = newWakeSocket("@cohort-test/" + rand.Text()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.sock.Close() })
		}
		members[r] = meet.Member{Rank: r, Process: os.Getpid(), Node: meet.ThisNode(), Addrs: l.Addrs(), OnDemand: cfg.onDemand()}
		if d != nil {
			members[r].Wake = d.name
		}
		cfg.Job = "job"
		ends = append(ends, &connecting{cfg: cfg, id: id, l: l, sleep: &sleeper{wake: d}, members: members, ring: 4096})
	}
	return ends
}

// meetAll lets them join the ranks of their node.
func meetAll(t *testing.T, ctx context.Context, ends []*connecting) {
	t.Helper()
	errs := make([]error, len(ends))
	var all sync.WaitGroup
	for r, c := range ends {
		all.Go(func() { errs[r] = c.meet(ctx) })
	}
	all.Wait()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// TestTwoRanksAgreeOnSharing checks that two ranks come to the same choice, whatever one of them cannot do, and that
// the connection is good for what follows.
func TestTwoRanksAgreeOnSharing(t *testing.T) {
	tooMuch := min(1<<45, math.MaxInt/4+1)
	for _, c := range []struct {
		what          string
		first, second int // the lengths of rings that the two want
		reason        string
	}{
		{"both can", 4096, 4096, ""},
		{"there is not that much memory", tooMuch, tooMuch, "shared memory"},
		{"the second does not take what it is given", 4096, 8192, "another version"},
	} {
		for _, connect := range []string{ConnectStart, ConnectDemand} {
			t.Run(c.what+", "+connect, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				ends := meeting(t, Config{Connect: connect}, Config{Connect: connect})
				ends[0].ring, ends[1].ring = c.first, c.second
				meetAll(t, ctx, ends)
				a, b := met(t, ctx)
				type result struct {
					l   *near
					why string
					err error
				}
				other := make(chan result)
				go func() {
					l, err := ends[1].rings(ctx, b)
					other <- result{l, ends[1].noNode + ends[1].why[0], err}
				}()
				l, err := ends[0].rings(ctx, a)
				for _, r := range []result{{l, ends[0].noNode + ends[0].why[1], err}, <-other} {
					if shared := shmem.Supported && c.reason == ""; r.err != nil || (r.l != nil) != shared ||
						!strings.Contains(r.why, c.reason) && shmem.Supported || (r.why == "") != (shared || !shmem.Supported) {
						t.Errorf("link %v, reason %q, error %v, want %q", r.l, r.why, r.err, c.reason)
					}
				}
				said := make(chan error, 1)
				go func() { said <- a.Agree(ctx, "go on") }()
				var got string
				if err := b.Agree(ctx, &got); err != nil || got != "go on" {
					t.Errorf("then rank 0 says %q, %v", got, err)
				}
				if err := <-said; err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestCollectivesUseSlots has one rank that takes no part in shared memory. A communicator without it makes
// its collectives over arrival slots, and one with it does not, on any rank.
func TestCollectivesUseSlots(t *testing.T) {
	for _, connect := range []string{ConnectStart, ConnectDemand} {
		t.Run(connect, func(t *testing.T) {
			ranks := opened(t, 4, func(r int) Config { return Config{Connect: connect, Sockets: r == 1} })
			ranktest.Each(t, ranks, func(c backend.Comm) error {
				barriers := func(c backend.Comm, want backend.Plan) error {
					for seq := range uint32(20) {
						b := &backend.Bound{Timeout: time.Minute}
						plan, err := c.(backend.Collectives).Collective(b, &backend.Call{Coll: backend.Barrier, Root: -1, Seq: seq + 1})
						if plan != want || err != nil {
							return fmt.Errorf("barrier %d: plan %v, %w; want %v", seq, plan, err, want)
						}
					}
					return nil
				}
				if err := barriers(c, backend.PlanChecked); err != nil || c.Rank() == 1 {
					return err
				}
				d, err := c.Derive(nil, []int{0, 2, 3}, 1)
				if err != nil {
					return err
				}
				defer d.Close()
				if !shmem.Supported {
					return barriers(d, backend.PlanChecked)
				}
				return barriers(d, backend.PlanDone)
			})
		})
	}
}

// TestAgreeEndsWithContext checks that waiting for what a rank does not say ends with the context.
func TestAgreeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	_, b := met(t, ctx)
	ended := make(chan error)
	go func() {
		ended <- b.Agree(ctx, new(string))
	}()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Errorf("the error is %v", err)
	}
}
