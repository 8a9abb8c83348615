package sched_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// deadline is a context that passes its deadline when it is canceled.
type deadline struct{ context.Context }

func (d deadline) Err() error {
	if d.Context.Err() == nil {
		return nil
	}
	return context.DeadlineExceeded
}

// A rank stops after all ranks have arrived. Some of the others wait for it, some for one of these.
// All of them name it at their deadline.
func TestTimeoutNamesTheRankAtTheEndOfTheChain(t *testing.T) {
	defer sched.ListenFor(time.Second)()
	for _, n := range []int{4, 100} {
		if n > 64 && testing.Short() {
			t.Log("left out with -short: reports that are passed on, in a large job; make test-all runs it")
			continue
		}
		const stopped = 1
		call := func() *backend.Call { return allreduce(0, make([]int64, 1024), make([]int64, 1024), sum) }
		var waiting, done sync.WaitGroup
		waiting.Add(n) // until then messages are on their way
		done.Add(n - 1)
		ctx, expire := context.WithCancel(context.Background())
		go func() { waiting.Wait(); expire() }()
		errs := ranks(t, n, func(bc backend.Comm, r *sched.Runner) error {
			if bc.Rank() == stopped {
				_, err := r.Agree(nil, call()) // takes part in the check, and sends no data
				waiting.Done()
				done.Wait()
				return err
			}
			defer done.Done()
			var once sync.Once
			bc.OnWait(func() { once.Do(waiting.Done) }, nil)
			defer context.AfterFunc(ctx, bc.Wake)()
			return r.Run(&backend.Bound{Ctx: deadline{ctx}}, call(), true)
		})
		chains := 0
		for rank, err := range errs {
			switch {
			case rank == stopped:
				if err != nil {
					t.Errorf("%d ranks: the stopped one did not arrive: %v", n, err)
				}
			case !errors.Is(err, backend.ErrTimeout):
				t.Errorf("%d ranks: rank %d: got %v, want a time-out", n, rank, err)
			case strings.HasSuffix(err.Error(), ", held up by rank 1"):
				chains++
			case !strings.HasSuffix(err.Error(), "; waiting for messages from rank 1"):
				t.Errorf("%d ranks: rank %d does not name rank 1: %v", n, rank, err)
			}
		}
		if chains == 0 {
			t.Errorf("%d ranks: all wait for rank 1 directly, which shows nothing", n)
		}
	}
}
