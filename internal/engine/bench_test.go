//go:build linux

package engine

import (
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/memlink"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// BenchmarkMessage is what a message of 8 bytes takes both ranks together, without what processors wait for
// each other's memory: one goroutine is both.
func BenchmarkMessage(b *testing.B) {
	check := atUnlock
	atUnlock = nil // it is for tests
	defer func() { atUnlock = check }()
	size := memlink.Size(1 << 20)
	seg, err := shmem.Create("engine-bench", 2*size)
	if err != nil {
		b.Fatal(err)
	}
	defer seg.Close()
	var world [2]backend.Comm
	for r := range world {
		rings := make(bell, 1)
		e := New(Config{Rank: r, Peers: make([]Peer, 2), Sleeper: rings, Spare: true, Heartbeat: -1, Manual: true})
		e.Connect(1-r, memlink.New(memlink.Config{Segment: seg, Out: r * size, In: (1 - r) * size, Data: 1 << 20, PID: os.Getpid()}))
		if world[r], err = e.Start(); err != nil {
			b.Fatal(err)
		}
	}
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
