package sched_test

import (
	"cmp"
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

// mute is a rank that stops before it sends its data.
type mute struct{ backend.Comm }

func (m mute) Isend(q *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if tag != backend.CheckTag(0)-1 {
		m.Comm.Isend(q, buf, dest, tag, mode)
	}
}

// Rank 1 stops before it sends rank 2 its data, and rank 0 waits for rank 2 in the exchange of lengths: rank 2 has made
// the call.
func TestTimeoutInExchangeOfLengthsSaysWhoHasArrived(t *testing.T) {
	var err error
	for limit := 50 * time.Millisecond; limit < 20*time.Second; limit *= 2 { // until all have arrived in time
		ended, end := context.WithCancel(context.Background())
		err = ranks(t, 3, func(bc backend.Comm, _ *sched.Runner) error {
			b := &backend.Bound{Ctx: ended}
			call := &backend.Call{Coll: backend.NeighborAllgather, Form: backend.Nonblocking, Root: -1, Type: int64s, Neighbors: new(backend.Neighbors)}
			switch bc.Rank() {
			case 0:
				b = &backend.Bound{Timeout: limit}
				defer end()
			case 1:
				bc, call.Send, call.Neighbors.Destinations = mute{bc}, make([]byte, 8), []int{2}
			case 2:
				call.Recv, call.Neighbors.Sources = make([]byte, 8), []int{1}
			}
			defer context.AfterFunc(ended, bc.Wake)()
			o, err := sched.New(bc).Start(call)
			if err != nil || bc.Rank() == 1 {
				<-ended.Done()
				return err
			}
			return cmp.Or(sched.Wait(b, o), o.Err())
		})[0]
		if err != nil && strings.HasSuffix(err.Error(), "waiting for messages from rank 2") {
			return
		}
	}
	t.Errorf("rank 0: %v", err)
}
