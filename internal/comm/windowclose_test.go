package comm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/test/inside"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/internal/window"
)

// dupWindow makes a window on a duplicate of w.
func dupWindow(w *Comm) (*Comm, *Window, error) {
	d, err := dup(w)
	if err != nil {
		return nil, nil, err
	}
	win, err := newWindow(d, 1)
	return d, win, err
}

// Comm.Close gives up waiting for an access. The access can still touch the memory.
func TestMemoryOfRunningAccessStaysMapped(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		must.OK(win.enter(0))
		must.OK(d.Close())
		if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Put after Close: %v", err)
		}
		in := bytes.Repeat([]byte{7}, 16)
		err = win.access(&Access{Kind: flight.Put, Disp: 0, In: in})
		if got := win.s.parts[0].Bytes(0, 16); !bytes.Equal(got, in) {
			t.Errorf("the access that runs has written %v", got)
		}
		win.s.leave()
		return err
	})
}

// Close of a window waits for an access until its deadline. The access can still touch the memory.
func TestMemoryOfAccessBesideCloseStaysMapped(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		win := must.Get(newWindow(w, 1))
		part, err := win.Own("test")
		must.OK(errors.Join(err, win.enter(0)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := win.WithContext(ctx).Close(); !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("Close returns %v, want ErrTimeout", err)
		}
		part[0] = 1
		win.s.leave()
		return win.Close()
	})
}

// Close of a communicator releases the locks that this rank holds, so that others get them.
func TestCloseOfCommunicatorReleasesLocks(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			_, err = win.Lock(window.Exclusive, 1)
			err = errors.Join(err, d.Close())
		}
		if err := errors.Join(err, barrier(w)); err != nil || w.Rank() == 0 {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = win.WithContext(ctx).Lock(window.Exclusive, 1)
		return err
	})
}

// Close of a communicator completes accesses of parts on several nodes. All its steps have one limit.
func TestCloseOfCommunicatorHasOneLimit(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = time.Hour
	defer func() { QuiesceFor = whole }()
	seen := make([]observed, 3)
	wrap := func(bc backend.Comm) backend.Comm { return apart{bc, &seen[bc.Rank()]} }
	ranksOn(t, 3, Options{Schedules: true}, wrap, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err == nil && w.Rank() == 0 {
			for r := 1; r < 3; r++ {
				err = errors.Join(err, win.Do("put", Access{Kind: flight.Put, Rank: r, In: make([]byte, 16)}))
			}
			err = errors.Join(err, d.Close())
			if n := len(seen[0].begun); n < 4 {
				t.Errorf("%d limited steps, want two requests and two answers", n)
			}
			seen[0].oneLimit(t, "close")
		}
		return errors.Join(err, barrier(w))
	})
}

// With a library a rank does not learn that another one has closed the window, and so does not answer. Close of a communicator
// ends an access that waits for such an answer, and does not wait for one itself.
func TestCloseOfCommunicatorEndsAccessWithoutAnswer(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = time.Hour
	defer func() { QuiesceFor = whole }()
	wrap := func(bc backend.Comm) backend.Comm { return apart{bc, &observed{in: "a library"}} }
	ranksOn(t, 2, Options{Schedules: true}, wrap, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			win.s.target.Shut()
			return errors.Join(barrier(w), barrier(w))
		}
		must.OK(barrier(w))
		ended := make(chan error)
		go func() { ended <- win.Do("get", Access{Kind: flight.Get, Rank: 1, Out: make([]byte, 16)}) }()
		inside.Wait("(*Window).answer")
		must.OK(win.Do("put", Access{Kind: flight.Put, Rank: 1, In: make([]byte, 16)}))
		must.OK(d.Close())
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("the access: %v, want ErrClosed", err)
		}
		return barrier(w)
	})
}

// A rank gives up an access so late that its window ends on all ranks. A rank that waits for it in Fence or Close, which it
// may never call, learns of that.
func TestFenceAndCloseEndWithTheWindow(t *testing.T) {
	for name, call := range map[string]func(*Window) error{"Fence": (*Window).Fence, "Close": (*Window).Close} {
		var waits atomic.Pointer[windowCore]
		wrap := func(bc backend.Comm) backend.Comm { return apart{bc, new(observed)} }
		ranksOn(t, 2, Options{Schedules: true}, wrap, func(w *Comm) error {
			d, win, err := dupWindow(w)
			if err != nil {
				return err
			}
			if w.Rank() == 1 {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				waits.Store(win.s)
				err := call(win.WithContext(ctx))
				if ctx.Err() != nil || !errors.Is(err, backend.ErrBroken) || !strings.Contains(err.Error(), "midway") {
					t.Errorf("%s: %v (its own deadline: %v), want ErrBroken", name, err, ctx.Err())
				}
				return barrier(w)
			}
			for waits.Load() == nil || !waits.Load().inBarrier.Load() {
				runtime.Gosched()
			}
			win.s.remote.core.bc.Break(fault(backend.ErrTimeout, "given up midway"))
			err = barrier(w)
			if err := win.Fence(); !errors.Is(err, backend.ErrBroken) {
				t.Errorf("Fence after it: %v, want ErrBroken", err)
			}
			return errors.Join(err, d.Close())
		})
	}
}

// Close of a window that the ranks close together takes the communicator. It is refused while another operation has it, and
// can be called again. A second goroutine that closes the window is not refused because of the first.
func TestCloseOfWindowTakesCommunicatorOnce(t *testing.T) {
	wrap := func(bc backend.Comm) backend.Comm { return apart{bc, new(observed)} }
	ranksOn(t, 2, Options{Schedules: true}, wrap, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		life := &win.s.core.life
		must.OK(life.take())
		if err := win.Close(); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("Close during a collective: %v, want ErrBusy", err)
		}
		win.s.inClose.Store(true) // another goroutine has taken the communicator to close the window
		if err := win.Close(); err != nil {
			t.Errorf("Close beside another one: %v", err)
		}
		win.s.inClose.Store(false)
		life.leave()
		err = win.Close()
		if !win.s.origin.IsShut() {
			t.Error("the window is not closed")
		}
		return errors.Join(err, d.Close())
	})
}

// LockAll fails on the last part: the first ones are free again.
func TestFailedLockAllReleasesItsLocks(t *testing.T) {
	ranks(t, 3, func(w *Comm) error {
		win, err := newWindow(w, 1)
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			_, err = win.Lock(window.Exclusive, 2)
		}
		must.OK(errors.Join(err, barrier(w)))
		if w.Rank() == 1 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := win.WithContext(ctx).LockAll()
			if !errors.Is(err, backend.ErrTimeout) || !strings.Contains(err.Error(), "rank 2's part: rank 0 holds it") {
				t.Errorf("LockAll: %v", err)
			}
			for r := range 2 {
				if s := win.s.parts[r].LockState(); s != 0 || win.s.holds[r].ticket != 0 {
					t.Errorf("rank %d's lock is not free: %v", r, s)
				}
			}
		}
		return barrier(w)
	})
}

// A goroutine waits for the lock of a window while its communicator is closed. It gets ErrClosed, and never the lock.
func TestLockEndsWhenCommunicatorIsClosed(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, a := must.Get2(dupWindow(w))
		if w.Rank() == 1 {
			g, err := a.Lock(window.Exclusive, 1)
			must.OK(errors.Join(err, barrier(w), barrier(w), g.Unlock()))
			if s := a.s.parts[1].LockState(); s != 0 {
				return fmt.Errorf("the lock is not free: %v", s)
			}
			return nil
		}
		must.OK(barrier(w))
		ended := make(chan error)
		held := a.s.parts[1].LockState()
		go func() {
			_, err := a.Lock(window.Exclusive, 1)
			ended <- err
		}()
		for a.s.parts[1].LockState() == held { // until it waits
			runtime.Gosched()
		}
		must.OK(d.Close())
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Lock: %v, want ErrClosed", err)
		}
		return barrier(w)
	})
}

// An update of a long element waits for the update of a rank that is stopped. It ends at its deadline, and when the
// communicator is closed.
func TestUpdateBehindStoppedRankEnds(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			release := holdElement(&win.s.parts[0])
			defer release()
			return errors.Join(barrier(w), barrier(w))
		}
		err = barrier(w)
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := accumulate(win.WithContext(ctx), 0); !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("after the deadline: %v, want ErrTimeout", err)
		}
		ended := make(chan error)
		go func() { ended <- accumulate(win, 0) }()
		inside.Wait("window.(*Part).stripe")
		must.OK(d.Close())
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
		return errors.Join(err, barrier(w))
	})
}

// A goroutine makes a window while another one closes the communicator. Either the window is not made, or Close has
// closed it.
func TestWindowMadeDuringCloseIsClosed(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		for range 300 {
			d := must.Get(dup(w))
			ended := make(chan error)
			go func() { ended <- d.Close() }()
			win, err := newWindow(d, 1)
			if e := <-ended; e != nil {
				return e
			}
			if err == nil {
				err = put(win, make([]byte, 16))
			}
			if !errors.Is(err, backend.ErrClosed) {
				return fmt.Errorf("after Close: %w, want ErrClosed", err)
			}
		}
		return nil
	})
}

// A goroutine closes a window while another one closes its communicator, which gives up waiting. The lock that the rank
// holds is released nevertheless.
func TestWindowAndCommunicatorCloseAtOnce(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 2, func(w *Comm) error {
		d, win, err := dupWindow(w)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			err := barrier(w)
			if s := win.s.parts[0].LockState(); s != 0 {
				t.Errorf("the lock is not free: %v", s)
			}
			return err
		}
		_, err = win.Lock(window.Exclusive, 0)
		must.OK(errors.Join(err, win.enter(0)))
		ended := make(chan error)
		go func() { ended <- win.Close() }() // waits for the access that has begun
		for win.enter(0) == nil {
			win.s.leave()
		}
		must.OK(d.Close())
		win.s.leave()
		if err := <-ended; !errors.Is(err, backend.ErrWin) {
			t.Errorf("Close of the window: %v, want ErrWin", err)
		}
		return barrier(w)
	})
}
