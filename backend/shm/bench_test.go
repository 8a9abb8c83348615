//go:build linux

package shm

import (
	"fmt"
	"math"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
)

// Programs that measure, to be run by hand (see docs/bench.md): the figures of
// the backend without the typed API above it.
func init() {
	programs["latency"] = func(c backend.Comm) error {
		for _, n := range []int{8, 64, 256, 1024, 8192, 65536, 1 << 20, 4 << 20} {
			buf := make([]byte, n)
			best := timed(n, func() {
				if c.Rank() == 0 {
					c.Send(nil, buf, 1, 1, backend.Standard)
					c.Recv(nil, buf, 1, 1)
				} else {
					c.Recv(nil, buf, 0, 1)
					c.Send(nil, buf, 0, 1, backend.Standard)
				}
			})
			if c.Rank() == 0 {
				fmt.Printf("p2p %d bytes: %.4f us\n", n, best/2)
			}
		}
		return nil
	}
	programs["allreduce"] = func(c backend.Comm) error {
		op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: kernel.For(backend.OpSum, backend.Float64)}
		for _, n := range []int{8, 64, 256, 1024, 4096, 65536, 4 << 20} {
			send, recv := make([]byte, n), make([]byte, n)
			call := &backend.Call{Root: -1, Coll: backend.Allreduce, Op: op, Type: float64s, Count: n / 8, Send: send, Recv: recv}
			best := timed(n, func() {
				call.Seq++
				if plan, err := c.(backend.Collectives).Collective(nil, call); err != nil || plan != backend.PlanDone && n <= 2048 {
					panic(fmt.Sprint(plan, err))
				}
			})
			if c.Rank() == 0 {
				fmt.Printf("allreduce %d bytes: %.4f us\n", n, best)
			}
		}
		return nil
	}
}

// timed returns the best time of one call in microseconds.
func timed(bytes int, f func()) float64 {
	iters := 200000
	if bytes > 1024 {
		iters = 20000
	}
	if bytes > 100000 {
		iters = 200
	}
	best := math.Inf(1)
	for range 5 {
		t := time.Now()
		for range iters {
			f()
		}
		best = min(best, float64(time.Since(t).Nanoseconds())/float64(iters)/1e3)
	}
	return best
}
