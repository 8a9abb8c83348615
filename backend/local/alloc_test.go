package local

import (
	"context"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// Blocking operations and restarted requests do not allocate, limited or not.
func TestOperationsDoNotAllocate(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	reduction := func(count int, inPlace bool) *backend.Call {
		call := &backend.Call{Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: count,
			Send: make([]byte, 8*count), Recv: make([]byte, 8*count)}
		if inPlace {
			call.InPlace, call.Send = true, nil
		}
		return call
	}
	collective := func(call func() *backend.Call) func(c *Comm, b *backend.Bound) func() {
		return func(c *Comm, b *backend.Bound) func() {
			mine := call()
			return func() { must(t, c.collective(b, mine, int(mine.Seq)+1)) }
		}
	}
	messages := func(n int, mode backend.Mode) func(c *Comm, b *backend.Bound) func() {
		return func(c *Comm, b *backend.Bound) func() {
			buf := make([]byte, n)
			return func() {
				for i := range 2 {
					if c.rank == i {
						must(t, c.Send(b, buf, 1-i, 0, mode))
					} else {
						_, err := c.Recv(b, buf, i, 0)
						must(t, err)
					}
				}
			}
		}
	}
	for name, work := range map[string]func(c *Comm, b *backend.Bound) func(){
		"short messages":       messages(8, backend.Standard),
		"long messages":        messages(copyMax+1, backend.Standard),
		"synchronous messages": messages(8, backend.Synchronous),
		"requests": func(c *Comm, b *backend.Bound) func() {
			var s, r backend.Request
			var in, out [100]byte
			return func() {
				r.Begin()
				c.Irecv(&r, in[:], 1-c.rank, 0)
				s.Begin()
				c.Isend(&s, out[:], 1-c.rank, 0, backend.Synchronous)
				must(t, c.Await(b, &r))
				must(t, c.Await(b, &s))
			}
		},
		"barrier":          collective(func() *backend.Call { return &backend.Call{Coll: backend.Barrier, Root: -1} }),
		"short allreduce":  collective(func() *backend.Call { return reduction(1, false) }),
		"long allreduce":   collective(func() *backend.Call { return reduction(5000, false) }),
		"allreduce inside": collective(func() *backend.Call { return reduction(5000, true) }),
		"scan inside": collective(func() *backend.Call {
			call := reduction(5000, true)
			call.Coll = backend.Scan
			return call
		}),
		"alltoall inside": collective(func() *backend.Call {
			return &backend.Call{Coll: backend.Alltoall, Root: -1, Type: ranktest.Int, Count: 1000, InPlace: true, Recv: make([]byte, 16000)}
		}),
	} {
		for _, b := range []*backend.Bound{nil, {Ctx: ctx}, {Ctx: ctx, Timeout: time.Hour, Since: time.Now()}} {
			const warm, runs = 20, 100
			ranks(t, 2, func(t testing.TB, c *Comm) {
				step := work(c, b)
				for range warm {
					step()
				}
				if c.rank == 1 {
					for range runs + 1 {
						step()
					}
					return
				}
				if n := testing.AllocsPerRun(runs, step); n != 0 {
					t.Errorf("%s: %v allocations with bound %v", name, n, b)
				}
			})
		}
	}
}
