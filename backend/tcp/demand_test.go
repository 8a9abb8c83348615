//go:build linux || darwin

package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/engine"
	"github.com/cohort-hpc/cohort/internal/meet"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// onDemand returns the ranks of a job, all in this process, that connect when they first need to.
func onDemand(t *testing.T, n int, cfg Config) []backend.Comm {
	t.Helper()
	return opened(t, n, func(int) Config { return cfg })
}

// freeAddress returns an address where nobody listens. Its port is none of those that systems give to connections and
// to listeners that do not ask for one: another process could have been given it by the time that it is used.
func freeAddress(t *testing.T) string {
	t.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(20000)))
		if err == nil {
			l.Close()
			return l.Addr().String()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// opened returns the ranks of a job, all in this process.
func opened(t *testing.T, n int, config func(rank int) Config) []backend.Comm {
	t.Helper()
	path := t.TempDir() + "/secret"
	if err := meet.NewSecret().WriteFile(path); err != nil {
		t.Fatal(err)
	}
	at := freeAddress(t)
	ranks, errs := make([]backend.Comm, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			cfg := config(r)
			cfg.Rank, cfg.Size, cfg.Job, cfg.Coordinator, cfg.SecretFile = r, n, "job", at, path
			ranks[r], errs[r] = Open(t.Context(), cfg)
		})
	}
	all.Wait()
	t.Cleanup(func() { closeRanks(ranks) })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return ranks
}

func closeRanks(ranks []backend.Comm) {
	var all sync.WaitGroup
	for _, c := range ranks {
		if c != nil {
			all.Go(func() { c.Close() })
		}
	}
	all.Wait()
}

// carriers of connections, for a job whose ranks have a processor each or not.
var demandCarriers = []struct {
	what  string
	cfg   Config
	spare bool
}{
	{"sockets", Config{Sockets: true}, true},
	{"checksums", Config{Sockets: true, Checksum: true}, true},
	{"shared memory", Config{}, true},
	{"shared memory with checksums", Config{Checksum: true}, true},
	{"exposed messages", Config{}, false},
}

// Connections that are made later have what those from the start have: shared memory, messages that are read
// from the peer, and checksums.
func TestLaterConnectionsHaveTheSameCarriers(t *testing.T) {
	for _, c := range demandCarriers {
		t.Run(c.what, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.cfg.Connect = ConnectDemand
			ends := meeting(t, c.cfg, c.cfg)
			for _, end := range ends {
				end.spare = c.spare
			}
			meetAll(t, ctx, ends)
			var accepted engine.Link
			failed := make(chan error, 1)
			go func() {
				w, err := ends[0].l.Accept(ctx)
				if err == nil {
					accepted, err = ends[0].ready(ctx, w)
				}
				failed <- err
			}()
			dialed, err := (&dialer{c: ends[1]}).Dial(ctx, 0)
			err = errors.Join(err, <-failed)
			defer closeAll([]engine.Link{dialed, accepted})
			if err != nil {
				t.Fatal(err)
			}
			for rank, l := range []engine.Link{accepted, dialed} {
				n, ring := l.(*near)
				if want := shmem.Supported && !c.cfg.Sockets; ring != want {
					t.Errorf("rank %d: shared memory is used: %v, want %v", rank, ring, want)
				} else if want := ring && !c.spare && ends[rank].node.Copies; ring && n.Memory().ChooseCopy(1<<20) != want {
					t.Errorf("rank %d: long messages are read from the peer: %v, want %v", rank, !want, want)
				} else if !ring && l.(*link).sums != c.cfg.Checksum {
					t.Errorf("rank %d: checksums: %v, want %v", rank, !c.cfg.Checksum, c.cfg.Checksum)
				}
			}
		})
	}
}

// Messages of all kinds go over connections that are made later, and such a connection allocates no more than
// another one.
func TestLaterConnectionsCarryMessages(t *testing.T) {
	for _, c := range demandCarriers[:4] { // whether ranks have a processor cannot be chosen here
		t.Run(c.what, func(t *testing.T) {
			c.cfg.Connect = ConnectDemand
			ranks := onDemand(t, 6, c.cfg)
			for _, length := range []int{8, 5000, 6 * engine.EagerMax} {
				ranktest.Each(t, ranks, func(c backend.Comm) error { return ranktest.Around(c, 5, length) })
			}
			facts := strings.Join(ranks[3].Diagnostics(), "\n")
			want := []string{"now with 3 of the 5 other ranks; rank 0 forwards notices"}
			if shmem.Supported && !c.cfg.Sockets {
				want = append(want, "shared memory: with 3 of the 5 other ranks on this node")
			}
			for _, w := range want {
				if !strings.Contains(facts, w) {
					t.Errorf("the diagnostics lack %q: %s", w, facts)
				}
			}
			buf, b := make([]byte, 8), &backend.Bound{Timeout: time.Minute}
			exchange := func() {
				for _, p := range [][2]int{{1, 2}, {2, 1}} {
					if err := ranks[p[0]].Send(b, buf, p[1], 1, backend.Standard); err != nil {
						t.Fatal(err)
					}
					if _, err := ranks[p[1]].Recv(b, buf, p[0], 1); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 100 {
				exchange()
			}
			if n := testing.AllocsPerRun(500, exchange); n >= 1 {
				t.Errorf("%v allocations for two messages", n)
			}
		})
	}
}

// A job with more ranks than any machine has cores takes few connections, and leaves no descriptor open.
func TestLargeJobTakesFewDescriptors(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 70
	}
	before := descriptors(t)
	ranks := onDemand(t, n, Config{Sockets: true})
	ranktest.Each(t, ranks, func(c backend.Comm) error { return ranktest.Around(c, 2, 8) })
	call := func(c backend.Comm) error {
		b := &backend.Bound{Timeout: time.Minute}
		return sched.New(c).Run(b, &backend.Call{Coll: backend.Barrier, Root: -1, Seq: 1}, true)
	}
	ranktest.Each(t, ranks, call)
	links := 0
	for _, c := range ranks {
		for _, fact := range c.Diagnostics() {
			k := 0
			if fmt.Sscanf(fact, "connections: made on demand (COHORT_TCP_CONNECT), now with %d of", &k); k > 0 {
				links += k
			}
		}
	}
	if most := n * 20; links == 0 || links > most {
		t.Errorf("%d ends of connections, want at most %d", links, most)
	}
	closeRanks(ranks)
	if after := descriptors(t); after > before+2 {
		t.Errorf("%d descriptors are open, and %d were before", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A rank that refuses a connection for good, because the two have different secrets, is told from one that may
// be dialed again.
func TestDialReportsRefusal(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	id := meet.Identity{Job: "job", Secret: meet.NewSecret(), Rank: 1, Size: 3}
	l, err := meet.Listen(meet.ListenConfig{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Identity: &id})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other := id
	other.Rank, other.Secret = 2, meet.NewSecret()
	d := &dialer{c: &connecting{id: &other, members: []meet.Member{{}, {Addrs: l.Addrs()}, {}}}}
	_, err = d.Dial(ctx, 1)
	if !d.Refused(err) || d.NotListening(err) || !strings.Contains(err.Error(), "has the same name and another secret") {
		t.Errorf("the error of Dial is %v, want a refusal because of the secret", err)
	}
	l.Close()
	if _, err = d.Dial(ctx, 1); d.Refused(err) || !d.NotListening(err) {
		t.Errorf("the error of Dial is %v, want that no process listens", err)
	}
}
