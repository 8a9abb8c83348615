package ranktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// AllocateNothing fails if a blocking operation of an even number of ranks allocates, whatever its length and with
// a deadline or without. Each rank is a process, and collective makes a collective call.
func AllocateNothing(c backend.Comm, collective func(b *backend.Bound, call *backend.Call) error) error {
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
	lengths := []int{0, 8, 1000, 20000, 1 << 20}
	if c.Size() > 2 {
		lengths = []int{8, 20000} // many ranks take seconds
	}
	for _, b := range []*backend.Bound{nil, {Timeout: time.Minute}} {
		for _, n := range lengths {
			if b == nil && (n > 20000 || c.Size() > 2) {
				continue // takes long, and a deadline makes calls no shorter
			}
			times := 100 // one allocation in each run is found, however few they are
			if n > 10000 {
				times = 30
			}
			send, recv := make([]byte, n), make([]byte, n)
			for _, mode := range []backend.Mode{backend.Standard, backend.Synchronous} {
				err := measure(fmt.Sprintf("send and receive of %d bytes, mode %v", n, mode), times, func() error {
					return pingPong(c, b, send, recv, mode)
				})
				if err != nil {
					return err
				}
			}
			for _, call := range []*backend.Call{
				{Coll: backend.Barrier, Root: -1},
				{Coll: backend.Bcast, Root: 0, Type: Int, Count: n / 8, Recv: recv[:n/8*8]},
				{Coll: backend.Allreduce, Root: -1, Op: Sum, Type: Int, Count: n / 8, Send: send[:n/8*8], Recv: recv[:n/8*8]},
			} {
				err := measure(fmt.Sprintf("%v of %d bytes", call.Coll, n), times, func() error {
					call.Seq++
					return collective(b, call)
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// pingPong sends a message from each even rank to the next one and back.
func pingPong(c backend.Comm, b *backend.Bound, send, recv []byte, mode backend.Mode) error {
	first, peer := c.Rank()%2 == 0, c.Rank()^1
	if first {
		if err := c.Send(b, send, peer, 1, mode); err != nil {
			return err
		}
	}
	if _, err := c.Recv(b, recv, peer, 1); err != nil {
		return err
	}
	if first {
		return nil
	}
	return c.Send(b, send, peer, 1, mode)
}
