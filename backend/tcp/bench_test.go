//go:build linux || darwin

package tcp

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/sched"
)

func init() {
	programs["bench"] = func(c backend.Comm) error {
		if err := pingPong(c, 8, 2000); err != nil {
			return err
		}
		if err := pingPong(c, 65536, 300); err != nil {
			return err
		}
		if err := pingPong(c, 4<<20, 20); err != nil {
			return err
		}
		if err := allreduce(c, 8, 2000); err != nil {
			return err
		}
		return allreduce(c, 65536, 200)
	}
}

// report prints the median of 11 batches.
func report(c backend.Comm, what string, times int, f func() error) error {
	var took []float64
	for range 11 {
		start := time.Now()
		for range times {
			if err := f(); err != nil {
				return err
			}
		}
		took = append(took, float64(time.Since(start).Nanoseconds())/float64(times)/1000)
	}
	if c.Rank() == 0 {
		slices.Sort(took)
		fmt.Fprintf(os.Stderr, "%-20s %8.2f µs, best %8.2f\n", what, took[5], took[0])
	}
	return nil
}

func pingPong(c backend.Comm, n, times int) error {
	buf := make([]byte, n)
	return report(c, fmt.Sprintf("round trip %d B", n), times, func() error {
		if c.Rank() == 0 {
			if err := c.Send(nil, buf, 1, 1, backend.Standard); err != nil {
				return err
			}
		}
		if _, err := c.Recv(nil, buf, 1-c.Rank(), 1); err != nil {
			return err
		}
		if c.Rank() == 1 {
			return c.Send(nil, buf, 0, 1, backend.Standard)
		}
		return nil
	})
}

func allreduce(c backend.Comm, n, times int) error {
	typ := &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}
	op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: typ, Apply: kernel.For(backend.OpSum, backend.Float64)}
	r := sched.New(c)
	call := backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: typ, Count: n / 8, Send: make([]byte, n), Recv: make([]byte, n)}
	return report(c, fmt.Sprintf("allreduce %d B", n), times, func() error {
		call.Seq++
		return r.Run(nil, &call, true)
	})
}

func BenchmarkTCP(b *testing.B) {
	for b.Loop() {
		launch(b, "bench", 2)
	}
}
