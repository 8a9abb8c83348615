//go:build linux

package engine

import (
	"runtime/metrics"
	"strconv"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
	"github.com/cohort-hpc/cohort/internal/wait"
)

// benchPair returns two ranks of this process with rings between them, whose waiters poll, or sleep at once.
func benchPair(b *testing.B, spare bool) (world [2]backend.Comm) {
	check := atUnlock
	atUnlock = nil // it is for tests
	b.Cleanup(func() { atUnlock = check })
	size := memlink.Size(1 << 20)
	seg, err := shmem.Create("engine-bench", 2*size)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { seg.Close() })
	rings := [2]bell{make(bell, 1), make(bell, 1)}
	var asleep wait.Bell // both always are
	asleep.Arm()
	var mailboxes [2]memlink.Mailbox
	for r := range world {
		e := New(Config{Rank: r, Peers: make([]Peer, 2), Sleeper: rings[r], Spare: spare, Heartbeat: -1, Manual: true})
		cfg := memlink.Config{Segment: seg, Out: r * size, In: (1 - r) * size, Data: 1 << 20, Says: &mailboxes[r], Hears: &mailboxes[1-r], Peer: shmem.Self().Process()}
		if !spare {
			cfg.Asleep, cfg.Bell = &asleep, rings[1-r].Ring
		}
		e.Connect(1-r, memlink.New(cfg))
		if world[r], err = e.Start(); err != nil {
			b.Fatal(err)
		}
	}
	return world
}

// BenchmarkMessage is what a message of 8 bytes takes both ranks together, without what processors wait for
// each other's memory: one goroutine is both.
func BenchmarkMessage(b *testing.B) {
	world := benchPair(b, true)
	buf := make([]byte, 8)
	b.Run("blocking", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			world[0].Send(nil, buf, 1, 1, backend.Standard)
			world[1].Recv(nil, buf, 0, 1)
		}
	})
	var reqs [2][32]backend.Request // half a ring
	for _, order := range []string{"sent first", "posted first"} {
		b.Run(order, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for k := range 2 {
					receive := (k == 0) == (order == "posted first")
					for i := range reqs[k] {
						q := &reqs[k][i]
						if q.Begin(); receive {
							world[1].Irecv(q, buf, 0, 1)
						} else {
							world[0].Isend(q, buf, 1, 1, backend.Standard)
						}
					}
				}
				for k := range reqs {
					for i := range reqs[k] {
						world[1].Await(nil, &reqs[k][i])
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(reqs[0])), "ns/message")
		})
	}
}

// BenchmarkWaiters is what a message takes that ends the wait of one goroutine, while others of its rank wait too. It
// reports how many goroutines are woken for a message; the benchmark itself wakes one, by a channel.
func BenchmarkWaiters(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			world := benchPair(b, false)
			got := make(chan struct{})
			var all sync.WaitGroup
			receive := func(tag int) {
				buf := make([]byte, 8)
				for {
					if world[1].Recv(nil, buf, 0, tag); buf[0] == 1 {
						return
					}
					got <- struct{}{}
				}
			}
			for tag := range n {
				all.Go(func() { receive(tag) })
			}
			buf := make([]byte, 8)
			pass := func(i int) {
				world[0].Send(nil, buf, 1, i%n, backend.Standard)
				<-got
			}
			for i := range 4 * n {
				pass(i)
			}
			begun, i := switches(), 0
			for b.Loop() {
				pass(i)
				i++
			}
			b.ReportMetric(float64(switches()-begun)/float64(i), "wake-ups/op")
			buf[0] = 1
			for tag := range n {
				world[0].Send(nil, buf, 1, tag, backend.Standard)
			}
			all.Wait()
		})
	}
}

// switches returns how often the runtime has let a goroutine run that was woken.
func switches() (n uint64) {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	for _, c := range sample[0].Value.Float64Histogram().Counts {
		n += c
	}
	return n * 8 // the runtime counts one in eight
}
