package local

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/ranktest"
)

// However the operations of many threads are under way when the job or the
// communicator ends, every one of them ends, and nothing stays in a queue.
func TestEndCompletesAllOperations(t *testing.T) {
	ends := []struct {
		name     string
		sentinel error
		end      func(c *Comm)
	}{
		{"fail", backend.ErrPeerLost, func(c *Comm) { _ = c.Declare(c.rank, errors.New("stress")) }},
		{"abort", backend.ErrPeerLost, func(c *Comm) { _ = c.Abort(1) }},
		{"break", backend.ErrCanceled, func(c *Comm) { c.Break(&backend.Fault{Sentinel: backend.ErrCanceled}) }},
	}
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	for round := range rounds {
		e := ends[round%len(ends)]
		comms := New(4)
		const threads = 3
		var begun sync.WaitGroup
		begun.Add(len(comms) * threads)
		var ender sync.WaitGroup
		ender.Go(func() {
			begun.Wait()
			for range round * 50 { // at another moment each time
				runtime.Gosched()
			}
			e.end(comms[round%len(comms)].(*Comm))
		})
		each(comms, func(c *Comm) {
			var wg sync.WaitGroup
			for thread := range threads {
				wg.Go(func() {
					begun.Done()
					pick := rand.New(rand.NewPCG(uint64(round), uint64(c.rank*3+thread)))
					for step := 0; ; step++ {
						if err := c.anything(pick, thread == 0, step); err != nil {
							if !errors.Is(err, e.sentinel) {
								t.Errorf("%s: rank %d: %v", e.name, c.rank, err)
							}
							return
						}
					}
				})
			}
			wg.Wait()
		})
		ender.Wait() // it may still be at the queues of ranks that have ended
		for _, c := range comms {
			me := c.(*Comm).me
			if n := me.posted.Len() + me.arrived.Len() + me.held.Len(); n != 0 {
				t.Errorf("%s: rank %d: %d operations are left", e.name, me.id, n)
			}
			must(t, c.Close())
		}
	}
}

// anything does an operation that may have to wait until the end.
func (c *Comm) anything(pick *rand.Rand, collectives bool, step int) error {
	peer, tag, n := pick.IntN(c.Size()), pick.IntN(3), lengths[pick.IntN(len(lengths)-1)]
	buf := make([]byte, n)
	if collectives && step%2 == 1 {
		count := []int{1, 2000}[step/2%2]
		return c.collective(nil, &backend.Call{Coll: backend.Allreduce, Root: -1, Op: ranktest.Sum, Type: ranktest.Int, Count: count,
			Send: make([]byte, 8*count), Recv: make([]byte, 8*count)}, step)
	}
	if step%2 == 0 {
		peer = backend.AnySource
	}
	ignore := func(err error) error {
		if errors.Is(err, backend.ErrTruncate) {
			return nil
		}
		return err
	}
	switch pick.IntN(5) {
	case 0:
		_, err := c.Recv(nil, buf, peer, tag)
		return ignore(err)
	case 1:
		m, _, ok, err := c.Mprobe(nil, peer, tag, step%3 == 0)
		if err != nil || !ok {
			return err
		}
		return ignore(c.ended(start(func(r *backend.Request) { c.Imrecv(r, m, buf) })))
	case 2:
		r := c.irecv(buf, peer, tag)
		if pick.IntN(2) == 0 {
			c.Cancel(r)
		}
		if err := c.ended(r); !errors.Is(err, backend.ErrCanceled) {
			return ignore(err)
		}
		return nil // taken back, or broken with that: the next one tells
	default:
		to := pick.IntN(c.Size())
		return c.Send(nil, buf, to, tag, backend.Mode{Synchronous: pick.IntN(2) == 1})
	}
}
