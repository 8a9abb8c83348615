package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
)

// TestLoopsOfManyGoroutines runs loops of random length from several goroutines, with failures,
// panics and canceled contexts, and counts the tasks.
func TestLoopsOfManyGoroutines(t *testing.T) {
	times := 300
	if testing.Short() {
		times = 60
	}
	for _, processors := range []int{0, 1} { // as many as there are, and fewer than workers
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", processors), func(t *testing.T) {
			p := open(t, Config{Threads: 3})
			if processors > 0 { // after the first loop, which adds some
				if err := ForEachWorker(p, func(int) error { return nil }); err != nil {
					t.Fatal(err)
				}
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			}
			var busy [3]atomic.Int32
			boom := errors.New("boom")
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(7, uint64(g)))
					for range times {
						n, bad := r.IntN(60), -1
						if r.IntN(4) == 0 && n > 0 {
							bad = r.IntN(n)
						}
						panics := r.IntN(2) == 0
						ctx, cancel := context.WithCancel(context.Background())
						if r.IntN(4) == 0 {
							cancel()
							ctx, cancel = context.WithTimeout(context.Background(), time.Duration(r.IntN(100))*time.Microsecond)
						}
						spins := make([]int, n)
						for i := range spins {
							spins[i] = r.IntN(4) * r.IntN(2000)
						}
						var ran atomic.Int64
						body := func() error {
							return ForEachContext(ctx, p, n, func(w, i int) error {
								if busy[w].Add(1) != 1 {
									return errors.New("two tasks on a worker")
								}
								defer busy[w].Add(-1)
								ran.Add(1)
								for range spins[i] {
									runtime.KeepAlive(i)
								}
								if i == bad && panics {
									panic(boom)
								} else if i == bad {
									return boom
								}
								return nil
							})
						}
						var err error
						if r.IntN(3) == 0 {
							err = p.Run(body)
						} else {
							err = body()
						}
						cancel()
						var e *TaskError
						switch {
						case err == nil:
							if bad >= 0 || ran.Load() != int64(n) {
								t.Errorf("no error after %d of %d tasks, of which %d is bad", ran.Load(), n, bad)
							}
						case errors.As(err, &e):
							if e.Index != bad || !errors.Is(err, boom) {
								t.Errorf("%v, where task %d is bad", err, bad)
							}
						case !errors.Is(err, backend.ErrTimeout):
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
