package cohort

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// WaitSome of several goroutines returns every completion exactly once.
func TestSetsShareCompletions(t *testing.T) {
	const messages, takers = 64, 4
	ranks(t, 2, func(w *Comm) error {
		if w.Rank() == 1 {
			for i := range messages {
				must.OK(Send(w, []int{i}, 0, i))
			}
			return nil
		}
		reqs := make([]*Request, messages)
		for i := range reqs {
			var err error
			if reqs[i], err = Irecv(w, make([]int, 1), 1, i); err != nil {
				return err
			}
		}
		var mu sync.Mutex
		returned := make([]int, messages)
		var wg sync.WaitGroup
		for range takers {
			wg.Go(func() {
				for {
					some, err := WaitSome(reqs...)
					if err != nil {
						t.Error(err)
					}
					if some == nil {
						return
					}
					mu.Lock()
					for _, i := range some {
						returned[i]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		for i, n := range returned {
			if n != 1 {
				t.Errorf("the completion of request %d was returned %d times", i, n)
			}
		}
		return nil
	})
}

// Of the requests of a set, each has its own deadline. WaitAny returns the first that passes, wherever it
// stands.
func TestWaitAnyEndsTheFirstDeadline(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		late, cancel1 := context.WithTimeout(context.Background(), time.Hour)
		defer cancel1()
		early, cancel2 := context.WithTimeout(context.Background(), 5*time.Millisecond)
		defer cancel2()
		a, err1 := Irecv(w, make([]int, 1), 0, 1)
		b, err2 := Irecv(w.WithContext(late), make([]int, 1), 0, 2)
		c, err3 := Irecv(w.WithContext(early), make([]int, 1), 0, 3)
		must.OK(errors.Join(err1, err2, err3))
		if i, _, err := WaitAny(a, b, c); i != 2 || !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("WaitAny returned %d, %v; want 2 and ErrTimeout", i, err)
		}
		if some, err := TestSome(c); some != nil || err != nil {
			return fmt.Errorf("TestSome of a request that has been returned: %v, %v", some, err)
		}
		if _, err := c.Wait(); !errors.Is(err, ErrTimeout) {
			return fmt.Errorf("Wait after the deadline was returned: %v", err)
		}
		return errors.Join(a.Cancel(), b.Cancel())
	})
}

// A goroutine waits for receives while another one closes the communicator. The wait ends, and Close does not say that
// nobody waits.
func TestCloseBesideWaitForSet(t *testing.T) {
	for name, wait := range map[string]func(a, b *Request) error{
		"WaitAny":  func(a, b *Request) error { _, _, err := WaitAny(a, b); return err },
		"WaitSome": func(a, b *Request) error { return second(WaitSome(a, b)) },
		"WaitAll":  func(a, b *Request) error { return WaitAll(a, b) },
	} {
		t.Run(name, func(t *testing.T) {
			closeBeside(t, func(d *Comm) (func() error, error) {
				a, one := Irecv(d, []int{0}, 1, 1)
				b, two := Irecv(d, []int{0}, 1, 2)
				return func() error { return wait(a, b) }, errors.Join(one, two)
			})
		})
	}
	t.Run("WaitAllPersistent", func(t *testing.T) {
		closeBeside(t, func(d *Comm) (func() error, error) {
			a, one := RecvInit(d, []int{0}, 1, 1)
			b, two := RecvInit(d, []int{0}, 1, 2)
			return func() error { return WaitAllPersistent(a, b) }, errors.Join(one, two, StartAll(a, b))
		})
	})
}

// closeBeside closes a communicator on rank 0 while a goroutine waits for what begin has begun there.
func closeBeside(t *testing.T, begin func(d *Comm) (wait func() error, err error)) {
	ranks(t, 2, func(w *Comm) error {
		d, err := w.Dup()
		if err != nil || w.Rank() == 1 {
			return errors.Join(err, w.Barrier(), d.Close())
		}
		wait := must.Get(begin(d))
		ended := make(chan error)
		go func() { ended <- wait() }()
		inside.Wait(").wait(") // it holds its requests by then
		err = d.Close()
		return errors.Join(err, wantErr("the wait", <-ended, ErrClosed), w.Barrier())
	})
}

// A goroutine waits for a set of requests of two ranks. The rank whose request is not the first closes.
func TestCloseBesideWaitForSetOfSeveralRanks(t *testing.T) {
	reqs, ended := make(chan *Request), make(chan error)
	ranks(t, 2, func(w *Comm) error {
		d := must.Get(w.Dup())
		q := must.Get(Irecv(d, []int{0}, 1-w.Rank(), 1))
		if w.Rank() == 1 {
			reqs <- q
			inside.Wait("comm.(*Set).wait(") // rank 0, which holds both requests by then
			return errors.Join(d.Close(), w.Barrier())
		}
		other := <-reqs
		go func() { _, _, err := WaitAny(q, other); ended <- err }()
		if err := <-ended; err == nil { // that of either request: one's peer has closed, the other is closed
			t.Error("WaitAny returns nil")
		}
		_ = d.Close()
		return w.Barrier()
	})
}
