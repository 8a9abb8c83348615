//go:build interleave

package node

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/internal/interleave"
	"github.com/cohort-hpc/cohort/internal/word"
)

// A rank sleeps on something of its own, as on sockets, and other ranks send there what wakes it. One of these may be
// stopped for good anywhere. The rank still finds all news of the other one, whose goroutines ring at most once a sleep.
func TestInterleaveBellOfStoppedRank(t *testing.T) {
	interleave.Explore(t, interleave.Config{Deaths: 1}, func(x *interleave.Run) {
		areas := []*rankArea{{}, {}, {}}
		var socket word.Uint32 // how many datagrams are in it
		var news [2]word.Uint32
		node := func(rank int) *Node {
			return &Node{areas: areas, told: make([]word.Uint32, len(areas)), cfg: &Config{Rank: rank, Bell: func(int) {
				socket.Add(1)
				word.FutexWake(&socket, 1)
			}}}
		}
		x.Name(&socket, "datagrams")
		x.Name(&areas[0].sleeps, "number of the sleep")
		x.GoMortal("stopped", func() { node(2).Wake(0) })
		rank1 := node(1)
		x.Name(&rank1.told[0], "rung by rank 1")
		for i := range news {
			x.Name(&news[i], "news")
			x.Go("rank 1", func() {
				news[i].Store(1)
				rank1.Wake(0)
			})
		}
		x.Go("rank 0", func() {
			found := func() bool { return news[0].Load() != 0 && news[1].Load() != 0 }
			for n := node(0); !found(); {
				n.Begin()
				if !found() {
					word.FutexWait(&socket, 0, 0)
				}
				n.End()
				socket.Store(0)
			}
		})
	})
}

// Rank 0 starts the job when the others have said yes, and each of these may give up at any time after that. All start, or
// none.
func TestInterleaveVerdict(t *testing.T) {
	interleave.Explore(t, interleave.Config{Preemptions: 6}, func(x *interleave.Run) {
		var v verdict
		var said [2]word.Uint32
		var got [3]uint32
		x.Name(&v.word, "verdict")
		x.Go("rank 0", func() {
			for r := range said {
				word.FutexWait(&said[r], 0, 0)
			}
			got[0] = v.settle(started)
		})
		for r := range said {
			x.Name(&said[r], "yes")
			x.Go("another rank", func() {
				said[r].Store(1)
				word.FutexWake(&said[r], 1)
				got[1+r] = v.settle(gaveUp + 1 + uint32(r))
			})
		}
		x.Check(func() error {
			if got[0] != got[1] || got[1] != got[2] || got[0] == undecided {
				return fmt.Errorf("the ranks take the verdict for %d", got)
			}
			return nil
		})
	})
}

// A rank offers rings to another one, which takes them late or never, uses them, and gives them back. A third rank offers
// them too, if they are free. Two generations are never in use at once, and in the end the rings are free.
func TestInterleaveRingsGivenBack(t *testing.T) {
	interleave.Explore(t, interleave.Config{}, func(x *interleave.Run) {
		var h holders
		var sent, rings word.Uint32 // the generation of the offer, and whose it is; who has written to the rings
		x.Name(&h.word, "holders")
		x.Name(&sent, "the offer")
		x.Name(&rings, "rings")
		use := func(of uint32) {
			if got := rings.Load(); got != of {
				x.Errorf("rings that rank %d has offered contain what rank %d has written", of, got)
			}
		}
		for rank := uint32(1); rank <= 2; rank++ {
			x.Go("offers", func() {
				if g, ok := h.offer(); ok {
					rings.Store(rank)
					sent.Store(g<<2 | rank)
					use(rank)
					h.leave()
				}
			})
		}
		x.Go("takes", func() {
			if o := sent.Load(); o != 0 && h.take(o>>2) {
				use(o & 3)
				h.leave()
			}
		})
		x.Check(func() error {
			if s := h.word.Load() & pairState; s != pairFree {
				return fmt.Errorf("the rings are in state %d", s)
			}
			return nil
		})
	})
}
