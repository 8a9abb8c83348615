//go:build linux || darwin

package tcp

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// silence makes ranks silent for the others, as a machine without power is: nothing comes over the
// connections with them, and who asks for one gets no answer. Others may be so already.
func silence(t *testing.T, ranks []*comm, already []int, victims ...int) {
	t.Helper()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	at := []netip.AddrPort{mute.Addr().(*net.TCPAddr).AddrPort()}
	for _, c := range ranks {
		if slices.Contains(victims, c.e.me) || slices.Contains(already, c.e.me) {
			continue
		}
		move(c, victims, at)
	}
	for _, v := range victims {
		ranks[v].e.mu.Lock()
	}
	t.Cleanup(func() {
		for _, v := range victims {
			ranks[v].e.mu.Unlock()
		}
		mute.Close()
	})
}

// move has a rank look for others elsewhere, from a moment on in which it asks none of them: who asks reads
// where they are.
func move(c *comm, others []int, to []netip.AddrPort) {
	asked := func(r int) bool { return c.e.links[r].asking }
	for c.e.mu.Lock(); slices.ContainsFunc(others, asked); c.e.mu.Lock() {
		c.e.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	for _, r := range others {
		c.e.demand.c.members[r].Addrs = to
	}
	c.e.mu.Unlock()
}

// TestDemandSilent has hubs fall silent, one after the other, many of them at once, and while ranks that
// are alive wait for each other: all of these learn of them, and no other is taken for lost.
func TestDemandSilent(t *testing.T) {
	for _, c := range []struct {
		what   string
		ranks  int
		talk   [][2]int // have a connection before
		silent [][]int  // together, and after those before are known to be lost
		then   [][2]int // who sends to whom when the first are silent
	}{
		{"two hubs at once", 6, nil, [][]int{{0, 1}}, [][2]int{{3, 5}, {5, 4}}},
		{"two hubs at once, and the third knows sooner", 6, [][2]int{{2, 1}}, [][]int{{0, 1}}, [][2]int{{3, 5}}},
		{"a hub and the last rank", 5, nil, [][]int{{0, 4}}, [][2]int{{2, 3}}},
		{"one hub after the other", 5, [][2]int{{3, 4}}, [][]int{{0}, {1}}, [][2]int{{2, 4}}},
		{"a machine with many ranks", 12, [][2]int{{10, 3}}, [][]int{{0, 1, 2, 3, 4, 5, 6, 7}}, [][2]int{{8, 11}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			ranks := onDemand(t, c.ranks, func(cfg *Config) { cfg.Heartbeat = time.Second })
			for _, p := range c.talk {
				if err := ranks[p[0]].Send(patient, nil, p[1], 1, backend.Standard); err != nil {
					t.Fatal(err)
				}
				if _, err := ranks[p[1]].Recv(patient, nil, p[0], 1); err != nil {
					t.Fatal(err)
				}
			}
			var lost []int
			for _, victims := range c.silent {
				silence(t, ranks, lost, victims...)
				if lost == nil {
					for _, p := range c.then {
						q := &backend.Request{}
						q.Begin()
						ranks[p[0]].Isend(q, nil, p[1], 2, backend.Standard)
					}
				}
				lost = append(lost, victims...)
				for r, x := range ranks {
					if !slices.Contains(lost, r) {
						lostIs(t, x, lost...)
					}
				}
			}
			works(t, without(t, ranks, 1, lost...))
			for r, x := range ranks {
				if !slices.Contains(lost, r) {
					lostIs(t, x, lost...)
				}
			}
		})
	}
}
