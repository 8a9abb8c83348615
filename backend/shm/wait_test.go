//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

func init() {
	// Many goroutines of each rank wait at once, in every way, with deadlines that pass or not, while
	// requests are canceled. Every wait ends.
	programs["crowd"] = func(c backend.Comm) error {
		const crowd = 6
		times := rounds(300)
		d := must.Get(c.Derive(nil, []int{0, 1}, 3))
		peer := 1 - c.Rank()
		var wg sync.WaitGroup
		errs := make([]error, crowd+2)
		for g := range crowd {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(g))) // the same on both ranks
				for i := range times {
					n := []int{1, 100, 10000, 200000}[r.IntN(4)]
					send, want := make([]byte, n), make([]byte, n)
					fill(send, c.Rank(), peer, i)
					fill(want, peer, c.Rank(), i)
					recv, check := guarded(n)
					in, out := &backend.Request{}, &backend.Request{}
					in.Begin()
					out.Begin()
					c.Irecv(in, recv, peer, g)
					c.Isend(out, send, peer, g, backend.Mode{Synchronous: r.IntN(2) == 1})
					for _, q := range []*backend.Request{in, out} {
						for c.Await(&backend.Bound{Timeout: 100 * time.Microsecond}, q) != nil {
						}
						if q.Err != nil {
							errs[g] = q.Err
							return
						}
					}
					if !bytes.Equal(recv, want) || check() != nil {
						errs[g] = fmt.Errorf("message %d of %d bytes: wrong data %v", i, n, check())
						return
					}
				}
			})
		}
		wg.Go(func() { // collectives, which send no messages
			for range times * 4 {
				if _, err := d.(backend.Collectives).Collective(nil, &backend.Call{Coll: backend.Barrier}); err != nil {
					errs[crowd] = err
					return
				}
			}
		})
		wg.Go(func() { // requests canceled while another goroutine completes them
			var q atomic.Pointer[backend.Request]
			stop := make(chan struct{})
			var canceler sync.WaitGroup
			canceler.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					if r := q.Load(); r != nil {
						c.Cancel(r)
					}
					runtime.Gosched()
				}
			})
			defer canceler.Wait()
			defer close(stop)
			for i := range times * 4 {
				r, s := &backend.Request{}, &backend.Request{}
				r.Begin()
				s.Begin()
				c.Irecv(r, make([]byte, 8), c.Rank(), 1000+i)
				q.Store(r)
				c.Isend(s, make([]byte, 8), c.Rank(), 1000+i, backend.Standard)
				if err := c.Await(nil, r); err != nil || r.Err != nil && !errors.Is(r.Err, backend.ErrCanceled) {
					errs[crowd+1] = errors.Join(err, r.Err)
					return
				}
			}
		})
		wg.Wait()
		return errors.Join(errs...)
	}
}

func TestManyGoroutinesWaitAtOnce(t *testing.T) {
	if testing.Short() {
		t.Setenv("SHM_TEST_ROUNDS", "40")
	}
	launch(t, "crowd", 2)
	t.Setenv("GOMAXPROCS", "1")
	launch(t, "crowd", 2)
}

// fill writes bytes that depend on all of its arguments.
func fill(b []byte, from, to, i int) {
	for k := range b {
		b[k] = byte(k*7 + k>>8 + from*31 + to*57 + i*13)
	}
}

const canary = 32

// guarded returns a buffer of n bytes between two canaries, and a check of them.
func guarded(n int) ([]byte, func() error) {
	all := bytes.Repeat([]byte{0xa5}, n+2*canary)
	return all[canary : canary+n : canary+n], func() error {
		want := bytes.Repeat([]byte{0xa5}, canary)
		if !bytes.Equal(all[:canary], want) || !bytes.Equal(all[canary+n:], want) {
			return errors.New("bytes outside the buffer were written")
		}
		return nil
	}
}
