//go:build interleave && linux

package board

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/interleave"
)

// A rank finds a wrong length in a neighborhood call, of which the others know nothing, and all close the communicator. Each
// rank is told, by Close at the latest, also if its slots had another communicator before, with as many calls.
func TestInterleaveNeighborhoodsAndClose(t *testing.T) {
	wrong := &backend.Fault{Sentinel: backend.ErrMismatch, Text: "a wrong length"}
	call := func(p *party, finds bool) error {
		call := &backend.Call{Coll: backend.NeighborAllgather, Root: -1, Type: int64s, Neighbors: &backend.Neighbors{}}
		err := p.do(nil, call, 0)
		if err == nil {
			if finds {
				p.Break(wrong)
			}
			call.Ended()
		}
		return err
	}
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 2}, false, 2, func(j *job, all []*party) {
				j.sleeps = true
				if again {
					for _, p := range all {
						p.fails("the call", call(p, false))
					}
					for _, p := range all {
						p.fails("close", p.close())
					}
					next := j.parties()
					for r, p := range all {
						p.forget()
						next[r].open(2)
					}
					all = next
				}
				for _, p := range all {
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						err := errors.Join(call(p, p.rank == 1), p.close())
						if p.rank == 0 && !errors.Is(err, backend.ErrMismatch) {
							j.x.Errorf("rank 0 is not told of the wrong length: %v", err)
						}
					})
				}
			})
		})
	}
}

// The operation of rank 0 panics, or ends its goroutine, for data in the slots or in the ranks' buffers, while other goroutines
// may close the communicator. Rank 0 fails. Rank 1 has its result or fails, and its next call fails. Both give their slots
// back.
func TestInterleaveUserOpFails(t *testing.T) {
	fails := map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit}
	for _, c := range []struct {
		how    string
		n      int
		closes bool
	}{{"panic", 1, false}, {"panic", 300, false}, {"Goexit", 1, true}, {"Goexit", 300, false}} {
		t.Run(fmt.Sprintf("%s, %d, closes %v", c.how, c.n, c.closes), func(t *testing.T) {
			explore(t, interleave.Config{Preemptions: 1}, false, 2, func(j *job, all []*party) {
				ended := []error{backend.ErrOp}
				if c.closes {
					ended = append(ended, backend.ErrClosed, backend.ErrPeerLost)
				}
				for _, p := range all {
					call := p.make(backend.Allreduce, -1, c.n, 0)
					sum := call.Op.Apply
					call.Op = &backend.Op{Code: backend.OpUser, Type: call.Op.Type, Commutative: true, Apply: func(dst, a, b []byte) {
						if p.rank == 0 {
							fails[c.how]()
						}
						sum(dst, a, b)
					}}
					j.x.Go(fmt.Sprint("rank ", p.rank), func() {
						err := backend.UserFault(nil) // stays if the goroutine ends
						defer func() {
							if p.fails("the reduction", err, ended...); p.rank == 0 && err == nil {
								j.x.Errorf("no error on the rank whose operation fails")
							}
							if p.Over() == nil && p.run(nil, backend.Barrier, -1, 0, 1) == nil {
								j.x.Errorf("rank %d: the call after an operation that has failed succeeds", p.rank)
							}
							if !c.closes {
								_ = p.close()
							}
							if p.forget(); !p.shut(gateUnused, gateOutside) {
								j.x.Errorf("rank %d has not given its slots back", p.rank)
							}
						}()
						err = p.do(nil, call, 0)
					})
					if c.closes {
						j.x.Go(fmt.Sprint("closer of rank ", p.rank), func() { _ = p.close() })
					}
				}
			})
		})
	}
}
