package comm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/datatype"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/view"
)

// ranks runs body as n ranks of a local job and fails the test with their errors.
func ranks(t *testing.T, n int, body func(w *Comm) error) {
	t.Helper()
	ranksOn(t, n, Options{}, func(bc backend.Comm) backend.Comm { return bc }, body)
}

// ranksOn is ranks with communicators that wrap returns for those of the backend.
func ranksOn(t *testing.T, n int, o Options, wrap func(backend.Comm) backend.Comm, body func(w *Comm) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for rank, bc := range local.New(n) {
		wg.Go(func() {
			w := NewWorld(context.Background(), wrap(bc), o)
			errs[rank] = errors.Join(must.Return(body)(w), w.Close())
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func dup(c *Comm) (*Comm, error) { return c.Split(DupCall, "dup", 0, 0, 0, nil) }

func barrier(c *Comm) error { return c.Run(c.Begin(backend.Barrier, -1), 0) }

// add returns the sum of all ranks' numbers.
func add(c *Comm, x int64) (int64, error) {
	send, recv := []int64{x}, []int64{0}
	call := c.Begin(backend.Allreduce, -1)
	call.Type, call.Op, call.Count = datatype.Number(backend.Int64), datatype.Op(backend.OpSum, datatype.Number(backend.Int64)), 1
	call.Send, call.Recv = view.Bytes(send), view.Bytes(recv)
	err := c.Run(call, 0)
	return recv[0], err
}

func TestClosedCommunicatorIsForgotten(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		for range 20 {
			d := must.Get(dup(w))
			must.OK(d.Close())
		}
		if n := len(w.core.job.derived()); n != 0 {
			return fmt.Errorf("%d communicators are still known", n)
		}
		return barrier(w)
	})
}

// idle returns an error if an agreement on a context id is under way on this rank: then those claimed since are kept.
func (j *job) idle() error {
	from := j.ids.Begin()
	if below := j.ids.End(from); below != from {
		return fmt.Errorf("an agreement that began when the next id was %d has not ended; it is %d now", below, from)
	}
	return nil
}

// settler notes what Settled says.
type settler struct {
	backend.Comm
	below atomic.Uint32
}

func (s *settler) Settled(below uint32) { s.below.Store(below) }

// A rank tells the backend that it makes no communicator any more with an id that it has claimed, also if it has not made
// one with it.
func TestBackendLearnsWhichIDsAreSettled(t *testing.T) {
	wrap := func(bc backend.Comm) backend.Comm { return &settler{Comm: bc} }
	ranksOn(t, 3, Options{}, wrap, func(w *Comm) error {
		color := 0
		if w.Rank() == 0 {
			color = Undefined
		}
		d, err := w.Split(SplitCall, "split", color, 0, 0, nil)
		if err != nil || (d == nil) != (w.Rank() == 0) {
			return fmt.Errorf("split: %v, %v", d, err)
		}
		if below := w.Backend().(*settler).below.Load(); below != 2 {
			t.Errorf("rank %d: the ids below %d are settled, want 2", w.Rank(), below)
		}
		return d.Close()
	})
}

// A Shrink runs out of time on one rank, and no call continues it before Close.
func TestCloseEndsUnfinishedShrink(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if _, err := d.WithContext(ctx).Shrink(); !errors.Is(err, backend.ErrCanceled) {
				t.Errorf("Shrink: %v, want ErrCanceled", err)
			}
		}
		must.OK(errors.Join(barrier(w), d.Close())) // rank 1 takes no part, and has not closed it
		if d, err = dup(w); err != nil {            // claims an id
			return err
		}
		return errors.Join(d.Close(), w.core.job.idle())
	})
}

// halfMade is a communicator on which rank 1 fails at the end of a Dup: its time is over although the others have agreed on
// a context id, or it cannot make the new communicator.
type halfMade struct {
	backend.Comm
	backend.Collectives
	late   bool
	claims int
}

func (h *halfMade) Collective(b *backend.Bound, c *backend.Call) (backend.Plan, error) {
	plan, err := h.Collectives.Collective(b, c)
	if c.Type == claimCall {
		h.claims++
	}
	if err == nil && h.late && h.claims == 2 && h.Rank() == 1 {
		err = fault(backend.ErrTimeout, "made up by the test")
		h.Break(err)
	}
	return plan, err
}

func (h *halfMade) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	if !h.late && h.Rank() == 1 {
		return nil, fault(backend.ErrAlloc, "made up by the test")
	}
	return h.Comm.Derive(b, members, id)
}

// If one rank has not made a new communicator, no rank has it: it would wait there for that rank without end.
func TestCommunicatorIsMadeOnAllRanksOrNone(t *testing.T) {
	for want, late := range map[error]bool{backend.ErrTimeout: true, backend.ErrAlloc: false} {
		wrap := func(bc backend.Comm) backend.Comm {
			return &halfMade{Comm: bc, Collectives: bc.(backend.Collectives), late: late}
		}
		ranksOn(t, 3, Options{}, wrap, func(w *Comm) error {
			d, err := dup(w)
			if d != nil || !errors.Is(err, want) || !strings.Contains(err.Error(), "made up by the test") {
				t.Errorf("rank %d: Dup returns %v, %v, want no communicator and %v", w.Rank(), d, err, want)
			}
			return nil
		})
	}
}

func TestHandleOfCanceledContextIsForgotten(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		ctx, cancel := context.WithCancel(context.Background())
		if h := w.WithContext(ctx); h == w || h != w.WithContext(ctx) {
			t.Error("a context does not have one handle")
		}
		cancel()
		for { // in its own time
			w.core.mu.Lock()
			n := len(w.core.handles)
			w.core.mu.Unlock()
			if n == 0 {
				return nil
			}
		}
	})
}

func TestClosedWindowIsForgotten(t *testing.T) {
	ranks(t, 2, func(c *Comm) error {
		typ := &backend.Datatype{Size: 8, Name: "word"}
		w, err := c.NewWindow(NewAllocation("test", typ, 1, OneNode, nil))
		if err != nil {
			return err
		}
		if n := len(c.core.windows); n != 1 {
			return fmt.Errorf("%d windows are open, want 1", n)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		err = w.WithContext(ctx).Close()
		if n := len(c.core.windows); n != 0 {
			return fmt.Errorf("%d windows are open", n)
		}
		return err
	})
}

// If a single rank gets no memory, the interface that memory returns is nil, not a nil pointer in it.
func TestFailedAllocationOfOneRankIsNil(t *testing.T) {
	ranks(t, 1, func(c *Comm) error {
		a := &Allocation{}
		a.lay.Total = math.MaxInt/2 + 1
		if mem, err := a.memory(c); err == nil || mem != nil {
			return fmt.Errorf("memory %v, error %v", mem, err)
		}
		return nil
	})
}

// The world's Close waits for the windows of all communicators together no longer than for those of one.
func TestCloseWaitsOnceForAllCommunicators(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = 100 * time.Millisecond
	defer func() { QuiesceFor = whole }()
	const comms = 400
	ranks(t, 1, func(w *Comm) error {
		for range comms {
			d := must.Get(dup(w))
			if !d.core.life.changes.Enter() { // a window whose making never ends
				return errClosed
			}
		}
		begun := time.Now()
		err := w.Close()
		// Generous for a slow machine: waits for one communicator after the other would take twice as long.
		if took := time.Since(begun); took > comms/2*QuiesceFor {
			return fmt.Errorf("Close took %v; it waits for at most %v", took, QuiesceFor)
		}
		return err
	})
}

// The world's Close waits for the checks of all communicators' calls together no longer than 5 s, here 100 ms.
func TestCloseWaitsOnceForAllChecks(t *testing.T) {
	shortenQuiesce(t)
	const comms = 6
	closed := make(chan struct{})
	ranks(t, 3, func(w *Comm) error {
		var all []*Comm
		for range comms {
			d := must.Get(dup(w))
			d.SetNeighbors(&backend.Neighbors{})
			all = append(all, d)
		}
		if w.Rank() > 0 {
			<-closed
			return nil
		}
		defer close(closed)
		for _, d := range all {
			call := d.Begin(backend.NeighborAllgather, -1)
			call.Type = datatype.Number(backend.Int64)
			must.OK(d.Run(call, 0))
		}
		begun := time.Now()
		err := w.Close()
		if took := time.Since(begun); took > comms/2*time.Second { // generous for a slow machine
			t.Errorf("Close took %v", took)
		}
		return err
	})
}

// The test sets one rank near the last context id, because a test cannot make that many
// communicators. The last ids are used. After that, every way to make a communicator returns an
// error on all ranks, each time, and existing communicators still work.
func TestContextIDsRunOut(t *testing.T) {
	const n, left = 3, 2
	ranks(t, n, func(w *Comm) error {
		if w.Rank() == 1 {
			_, _ = w.core.job.ids.Claim(agree.ControlID - left - 1)
		}
		var last *Comm
		for i := range left {
			d, err := dup(w)
			if err != nil {
				return fmt.Errorf("%d from the end: %w", left-i, err)
			}
			if want := uint32(agree.ControlID - left + i); d.core.id != want {
				t.Errorf("rank %d: a communicator has number %#x, want %#x", w.Rank(), d.core.id, want)
			}
			last = d
		}
		for range 2 {
			for _, c := range []*Comm{w, last} {
				for i, make := range []func() (*Comm, error){
					func() (*Comm, error) { return dup(c) },
					func() (*Comm, error) { return c.Split(SplitCall, "split", c.Rank()%2, 0, 0, nil) },
					func() (*Comm, error) { return c.Split(SplitSharedCall, "splitshared", 0, 0, 0, nil) },
					func() (*Comm, error) { return c.CreateGroup([]int{0, 1, 2}, 0, nil) },
					func() (*Comm, error) { return c.Split(CartCall, "cart", 0, c.Rank(), 7, nil) },
					c.Shrink,
				} {
					_, err := make()
					if !errors.Is(err, backend.ErrAlloc) || !strings.Contains(err.Error(), "2147483648") {
						t.Errorf("rank %d, way %d: %v, want ErrAlloc with how many there were", w.Rank(), i, err)
					}
				}
				if sum, err := add(c, 1<<w.Rank()); err != nil || sum != 7 {
					return fmt.Errorf("a sum is %d afterwards, want 7: %w", sum, err)
				}
				if all, err := c.Agree(^(1 << w.Rank())); err != nil || all != ^7 {
					return fmt.Errorf("%b is agreed on afterwards, want %b: %w", all, ^7, err)
				}
			}
		}
		return last.Close()
	})
}

// A communicator that is made while another goroutine closes the world is closed.
func TestCommunicatorMadeDuringCloseIsClosed(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		bc := must.Get(w.core.bc.Derive(nil, []int{0}, 1))
		must.OK(w.Close())
		if c, err := w.child("late", bc, 1); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("%v, %v, want ErrClosed", c, err)
		}
		if _, _, err := bc.Probe(nil, backend.AnySource, backend.AnyTag, false); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("the backend's communicator is open: Probe returns %v", err)
		}
		return nil
	})
}
