//go:build linux || darwin

package tcp

import (
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
)

var float64s = &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}

func init() {
	// A blocking operation allocates nothing, whatever its length and with a
	// deadline or without.
	programs["allocs"] = func(c backend.Comm) error {
		peer := 1 - c.Rank()
		op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: kernel.For(backend.OpSum, backend.Float64)}
		runner := sched.New(c)
		var failed error
		measure := func(what string, times int, f func() error) error {
			g := func() {
				if err := f(); err != nil && failed == nil {
					failed = err
				}
			}
			for range 20 {
				g() // what is kept for the next time
			}
			if n := testing.AllocsPerRun(times, g); n != 0 && failed == nil {
				failed = fmt.Errorf("%s: %v allocations", what, n)
			}
			return failed
		}
		for _, b := range []*backend.Bound{nil, {Timeout: time.Minute}} {
			for _, n := range []int{0, 8, 1000, 20000, 1 << 20} {
				times := 100 // one allocation in each run is found, however few they are
				if n > 10000 {
					times = 10
				}
				send, recv := make([]byte, n), make([]byte, n)
				for _, mode := range []backend.Mode{backend.Standard, backend.Synchronous} {
					err := measure(fmt.Sprintf("send and receive of %d bytes, mode %d", n, mode), times, func() error {
						if c.Rank() == 0 {
							if err := c.Send(b, send, peer, 1, mode); err != nil {
								return err
							}
						}
						if _, err := c.Recv(b, recv, peer, 1); err != nil {
							return err
						}
						if c.Rank() == 1 {
							return c.Send(b, send, peer, 1, mode)
						}
						return nil
					})
					if err != nil {
						return err
					}
				}
				for _, call := range []*backend.Call{
					{Coll: backend.Barrier, Root: -1},
					{Coll: backend.Bcast, Root: 0, Type: float64s, Count: n / 8, Recv: recv[:n/8*8]},
					{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s, Count: n / 8, Send: send[:n/8*8], Recv: recv[:n/8*8]},
				} {
					err := measure(fmt.Sprintf("%v of %d bytes", call.Coll, n), times, func() error {
						call.Seq++
						return runner.Run(b, call, true)
					})
					if err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
}

func TestNoAllocations(t *testing.T) { launch(t, "allocs", 2) }
