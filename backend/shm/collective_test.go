//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

var float64s = &backend.Datatype{Kind: backend.Float64, Size: 8, Name: "float64", ID: uint32(backend.Float64)}

func init() {
	// Rank 0 gives up a collective in which all have arrived, and reuses its buffer while rank 2 still
	// reads it: rank 2 gets an error.
	programs["retracted"] = func(c backend.Comm) error {
		const block = 1 << 16
		d, err := c.Derive(nil, []int{0, 1, 2}, 4)
		if err != nil {
			return err
		}
		sum := kernel.For(backend.OpSum, backend.Float64)
		op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: sum}
		var bound *backend.Bound
		waited := false
		switch c.Rank() {
		case 0:
			bound = &backend.Bound{Timeout: 50 * time.Millisecond, Since: time.Now()}
		case 2:
			op.Apply = func(dst, a, b []byte) {
				if !waited {
					waited = true
					c.Recv(nil, nil, 0, 1)
				}
				sum(dst, a, b)
			}
		}
		send, recv := make([]byte, 3*block*8), make([]byte, block*8)
		_, err = d.(backend.Collectives).Collective(bound, &backend.Call{Coll: backend.ReduceScatterBlock, Root: -1, Op: op,
			Type: float64s, Count: block, Send: send, Recv: recv})
		if !errors.Is(err, backend.ErrTimeout) {
			return fmt.Errorf("%v, want ErrTimeout", err)
		}
		if c.Rank() == 0 {
			for i := range send {
				send[i] = 1
			}
			must.OK(c.Send(nil, nil, 2, 1, backend.Standard))
			_, err = c.Recv(nil, nil, 2, 2) // until it has read
			return err
		}
		if c.Rank() == 2 {
			return c.Send(nil, nil, 0, 2, backend.Standard)
		}
		return nil
	}

	// A rank is canceled in the middle of its data, and does not go on to their end.
	programs["midway"] = func(c backend.Comm) error {
		const count, most = 4 << 20, 8 << 20 // numbers in a vector of 32 MiB, and bytes that may still be added
		sum := kernel.For(backend.OpSum, backend.Float64)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		bound := &backend.Bound{}
		op := &backend.Op{Code: backend.OpSum, Commutative: true, Type: float64s, Apply: sum}
		added := 0
		if c.Rank() == 1 {
			bound.Ctx = ctx
			op.Apply = func(dst, a, b []byte) {
				cancel()
				added += len(dst)
				sum(dst, a, b)
			}
		}
		_, err := c.(backend.Collectives).Collective(bound, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: op, Type: float64s, Count: count,
			Send: make([]byte, count*8), Recv: make([]byte, count*8)})
		if !errors.Is(err, backend.ErrCanceled) || !strings.Contains(err.Error(), "rank 1 was in the middle of Allreduce") || added > most {
			return fmt.Errorf("%v after %d bytes, want ErrCanceled after %d at most", err, added, most)
		}
		return nil
	}

}

func TestFailedCallRetractsArrival(t *testing.T) { onOneProcessor(t); launch(t, "retracted", 3) }
func TestCollectiveEndsMidway(t *testing.T)      { onOneProcessor(t); launch(t, "midway", 2) }

// onOneProcessor makes the processes that the test starts share one processor: only then is it certain that
// ranks copy long vectors from process to process.
func onOneProcessor(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &all); err == nil {
			runtime.UnlockOSThread()
		}
	})
}
