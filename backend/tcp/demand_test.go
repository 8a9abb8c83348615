//go:build linux || darwin

package tcp

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wire"
)

// onDemand returns the ranks of a job, all in this process, that connect when they first need to.
func onDemand(t *testing.T, n int, change func(*Config)) []*comm {
	t.Helper()
	dir := t.TempDir()
	if err := wire.NewSecret().WriteFile(dir + "/secret"); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Size: n, Job: "job", Coordinator: l.Addr().String(), SecretFile: dir + "/secret", Connect: ConnectDemand, Sockets: true}
	l.Close()
	if change != nil {
		change(&cfg)
	}
	ranks, errs := make([]*comm, n), make([]error, n)
	var all sync.WaitGroup
	for r := range n {
		all.Go(func() {
			mine := cfg
			mine.Rank = r
			c, err := Open(t.Context(), mine)
			if errs[r] = err; err == nil {
				ranks[r] = c.(*comm)
			}
		})
	}
	all.Wait()
	t.Cleanup(func() { closeAll(ranks) })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return ranks
}

func closeAll(ranks []*comm) {
	var all sync.WaitGroup
	for _, c := range ranks {
		if c != nil {
			all.Go(func() { c.Close() })
		}
	}
	all.Wait()
}

// peersOf returns the ranks with which c has a connection.
func peersOf(c *comm) (list []int) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	for r, l := range c.e.links {
		if l != nil && l.fd >= 0 {
			list = append(list, r)
		}
	}
	return list
}

// each runs f for every rank at once.
func each(t *testing.T, ranks []*comm, f func(c *comm) error) {
	t.Helper()
	errs := make([]error, len(ranks))
	var all sync.WaitGroup
	for i, c := range ranks {
		all.Go(func() { errs[i] = f(c) })
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", ranks[i].e.me, err)
		}
	}
}

// around sends a number of messages of a length from each rank to the next, which must get them in order.
func around(c *comm, messages, length int) error {
	n, me := c.Size(), c.Rank()
	out, in := make([]byte, length), make([]byte, length)
	for i := range messages {
		q := &backend.Request{}
		q.Begin()
		c.Irecv(q, in, (me+n-1)%n, 5)
		fill(out, me*50+i)
		if err := c.Send(patient, out, (me+1)%n, 5, backend.Standard); err != nil {
			return err
		}
		if err := c.Await(patient, q); err != nil {
			return err
		}
		if q.Err != nil {
			return q.Err
		}
		if !bytes.Equal(in, fill(make([]byte, length), (me+n-1)%n*50+i)) {
			return fmt.Errorf("message %d of rank %d is not what was sent", i, (me+n-1)%n)
		}
	}
	return nil
}

// TestDemandRing checks that only those who have something to say to each other have a connection.
func TestDemandRing(t *testing.T) {
	for _, length := range []int{8, 4 * eagerMax} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			ranks := onDemand(t, 8, nil)
			for _, c := range ranks[1:] {
				if got := peersOf(c); len(got) != 1 || got[0] != 0 {
					t.Errorf("rank %d begins with connections to %v, want 0 alone", c.e.me, got)
				}
			}
			each(t, ranks, func(c *comm) error { return around(c, 20, length) })
			for me, c := range ranks {
				want := map[int]bool{(me + 1) % 8: true, (me + 7) % 8: true}
				if me > 0 {
					want[0] = true
				} else {
					want = map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 7: true}
				}
				got := peersOf(c)
				if len(got) != len(want) {
					t.Errorf("rank %d has connections to %v, want %v", me, got, want)
				}
				for _, r := range got {
					if !want[r] {
						t.Errorf("rank %d has a connection to %d", me, r)
					}
				}
			}
			if d := strings.Join(ranks[3].Diagnostics(), "\n"); !strings.Contains(d, "now with 3 of the 7 other ranks") {
				t.Errorf("Diagnostics says %q", d)
			}
		})
	}
}

// TestDemandCarriers checks that connections which are made later have what those from the start have: memory that
// is shared, messages that are exposed, and checksums.
func TestDemandCarriers(t *testing.T) {
	for _, c := range []struct {
		what  string
		cfg   Config
		spare bool // every rank has a processor
	}{
		{"sockets", Config{Sockets: true}, true},
		{"checksums", Config{Sockets: true, Checksum: true}, true},
		{"shared memory", Config{}, true},
		{"shared memory with checksums", Config{Checksum: true}, true},
		{"exposed messages", Config{}, false},
	} {
		t.Run(c.what, func(t *testing.T) {
			ranks := onDemand(t, 4, func(cfg *Config) { cfg.Sockets, cfg.Checksum = c.cfg.Sockets, c.cfg.Checksum })
			for _, r := range ranks {
				r.e.mu.Lock()
				r.e.spare = c.spare
				r.e.mu.Unlock()
			}
			for _, length := range []int{8, 5000, 6 * eagerMax} {
				each(t, ranks, func(x *comm) error { return around(x, 5, length) })
			}
			for _, p := range [][2]int{{1, 2}, {2, 1}, {2, 3}, {3, 2}} {
				e := ranks[p[0]].e
				e.mu.Lock()
				l := e.links[p[1]]
				_, ring := l.over.(*shared)
				if want := shmem.Supported && !c.cfg.Sockets; ring != want || l.sums != c.cfg.Checksum {
					t.Errorf("rank %d to %d: shared memory is used: %v, want %v; checksums: %v, want %v", p[0], p[1], ring, want, l.sums, c.cfg.Checksum)
				} else if ring && !c.spare && readable(claim()) != 0 && !l.exposes {
					t.Errorf("rank %d does not expose messages to %d", p[0], p[1])
				}
				e.mu.Unlock()
			}
		})
	}
}

// TestDemandAllocs checks that a connection that was made later allocates no more than another one.
func TestDemandAllocs(t *testing.T) {
	ranks := onDemand(t, 3, nil)
	buf := make([]byte, 8)
	exchange := func() {
		for _, p := range [][2]int{{1, 2}, {2, 1}} {
			if err := ranks[p[0]].Send(patient, buf, p[1], 1, backend.Standard); err != nil {
				t.Fatal(err)
			}
			if _, err := ranks[p[1]].Recv(patient, buf, p[0], 1); err != nil {
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
}

// TestDemandAtOnce checks that ranks which want each other at the same moment have one connection, and
// that messages stay in order.
func TestDemandAtOnce(t *testing.T) {
	ranks := onDemand(t, 5, nil)
	each(t, ranks, func(c *comm) error {
		me := byte(c.Rank())
		for i := range 50 {
			for r := range c.Size() {
				if r != c.Rank() {
					if err := c.Send(patient, []byte{me, byte(i)}, r, 1, backend.Standard); err != nil {
						return err
					}
				}
			}
		}
		for r := range c.Size() {
			for i := range 50 {
				if r == c.Rank() {
					break
				}
				buf := make([]byte, 2)
				if _, err := c.Recv(patient, buf, r, 1); err != nil {
					return err
				}
				if buf[0] != byte(r) || buf[1] != byte(i) {
					return fmt.Errorf("message %d of rank %d is %d of rank %d", i, r, buf[1], buf[0])
				}
			}
		}
		return nil
	})
	each(t, ranks, func(c *comm) error { return rounds(c, 20) })
}

// TestDemandMany checks a job with more ranks than any machine has cores: few descriptors, and none is
// left over.
func TestDemandMany(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 70
	}
	before := descriptors(t)
	ranks := onDemand(t, n, func(cfg *Config) { cfg.Connect = "" })
	each(t, ranks, func(c *comm) error { return around(c, 2, 8) })
	call := func(c *comm) error {
		return sched.New(c).Run(patient, &backend.Call{Coll: backend.Barrier, Root: -1, Seq: 1}, true)
	}
	each(t, ranks, call)
	links := 0
	for _, c := range ranks {
		links += len(peersOf(c))
	}
	if most := n * 20; links > most {
		t.Errorf("%d ends of connections, want at most %d", links, most)
	}
	closeAll(ranks)
	if after := descriptors(t); after > before+2 {
		t.Errorf("%d descriptors are left, %d were there before", after, before)
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

// TestDemandLoss checks that everybody learns of the loss of a rank without a connection to it, of that of
// the hub, and of that of the next one.
func TestDemandLoss(t *testing.T) {
	ranks := onDemand(t, 6, nil)
	q, _ := irecv(ranks[4], 8, 2, 9)
	kill(ranks[2])
	isLost(t, "a receive from the lost rank", await(t, ranks[4], q), "rank 2 ")
	live := []*comm{ranks[0], ranks[1], ranks[3], ranks[4], ranks[5]}
	for _, c := range live {
		lostIs(t, c, 2)
	}
	for hub, want := range [][]int{{0, 2}, {0, 1, 2}} {
		kill(ranks[hub])
		live = live[1:]
		for _, c := range live {
			lostIs(t, c, want...)
		}
	}
}

// TestDemandRefused has a rank refuse a connection for good, as one whose certificate is no more valid does: who
// wants it hears why, without heartbeats and deadlines too.
func TestDemandRefused(t *testing.T) {
	ranks := onDemand(t, 3, func(cfg *Config) { cfg.Heartbeat = -1 })
	other := *ranks[2].e.demand.c.id
	other.Secret = wire.NewSecret()
	ranks[2].e.demand.c.id = &other
	q := new(backend.Request)
	q.Begin()
	ranks[2].Isend(q, make([]byte, 1<<20), 1, 9, backend.Standard)
	isLost(t, "a send to a rank that refuses the connection", await(t, ranks[2], q), "rank 1 ", "cannot be reached", "has the same name and another secret")
}

// TestDemandLeave checks that a rank which has left in good order is no loss, for those without a
// connection to it too, and when the hub leaves after it, or first.
func TestDemandLeave(t *testing.T) {
	for _, order := range [][]int{{3, 0}, {0, 3}, {0, 1, 2}, {1, 0, 4}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			ranks := onDemand(t, 6, nil)
			last := ranks[5]
			var waits []*backend.Request
			for _, r := range order {
				q, _ := irecv(last, 8, r, 9)
				waits = append(waits, q)
			}
			live := append([]*comm(nil), ranks...)
			for i, r := range order {
				ranks[r].Close()
				live[r] = nil
				isLost(t, fmt.Sprintf("a receive from rank %d", r), await(t, last, waits[i]), fmt.Sprintf("rank %d has closed its communicator and left the job", r))
			}
			var rest []*comm
			for _, c := range live {
				if c != nil {
					rest = append(rest, c)
				}
			}
			each(t, rest, func(c *comm) error {
				for _, to := range rest {
					if to == c {
						continue
					}
					if err := c.Send(patient, nil, to.rank, 3, backend.Standard); err != nil {
						return err
					}
					if _, err := c.Recv(patient, nil, to.rank, 3); err != nil {
						return err
					}
				}
				if lost := c.e.lostInOrder; len(lost) > 0 {
					return fmt.Errorf("%v are lost", lost)
				}
				return nil
			})
		})
	}
}
