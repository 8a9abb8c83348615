package comm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
	"github.com/cohort-hpc/cohort/internal/word"
)

// pair is an element of 16 bytes, whose updates take a lock.
var pair = &backend.Datatype{Kind: backend.Complex128, Size: 16, Name: "complex128"}

func shortenQuiesce(t *testing.T) {
	whole := QuiesceFor
	QuiesceFor = 100 * time.Millisecond
	t.Cleanup(func() { QuiesceFor = whole })
}

func put(w *Onesided, elem []byte) error {
	return w.Do("put", Access{Kind: flight.Put, Rank: w.s.core.rank, In: elem})
}

// holdElements takes the locks of all long elements of a part, as a rank that is stopped in the middle of an update
// holds one.
func holdElements(p *window.Cells) {
	copy(p.Bytes(64, window.CellsHead-64), bytes.Repeat([]byte{1, 0, 0, 0, 0, 0, 0, 0}, window.CellsHead/8))
}

func accumulate(w *Onesided, rank int) error {
	return w.Do("accumulate", Access{Kind: flight.Accumulate, Op: numberOps[backend.OpSum][backend.Complex128], Rank: rank, In: make([]byte, 16)})
}

// apart is a communicator each of whose ranks is on a node of its own. It learns of a loss by a probe, and notes when
// the operations with a limit of an hour have begun.
type apart struct {
	backend.Comm
	*observed
}

type observed struct {
	lost  atomic.Bool
	mu    sync.Mutex
	begun []time.Time
}

func (a apart) NodeOf(rank int) int { return a.WorldRank(rank) }

func (a apart) Derive(members []int, id uint32) (backend.Comm, error) {
	c, err := a.Comm.Derive(members, id)
	return apart{c, a.observed}, err
}

func (a apart) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	if a.lost.Load() {
		return backend.Status{}, false, fault(backend.ErrPeerLost, "rank 7 is lost")
	}
	return a.Comm.Probe(b, source, tag, block)
}

func (a apart) note(b *backend.Bound) {
	if b != nil && b.Timeout == time.Hour {
		a.mu.Lock()
		a.begun = append(a.begun, b.Since)
		a.mu.Unlock()
	}
}

func (a apart) Await(b *backend.Bound, p backend.Pending) error {
	a.note(b)
	return a.Comm.Await(b, p)
}

func (a apart) Send(b *backend.Bound, buf []byte, dest, tag int, mode backend.Mode) error {
	a.note(b)
	return a.Comm.Send(b, buf, dest, tag, mode)
}

func (a apart) Recv(b *backend.Bound, buf []byte, source, tag int) (backend.Status, error) {
	a.note(b)
	return a.Comm.Recv(b, buf, source, tag)
}

// apartRanks runs two ranks on two nodes, with a window of n elements.
func apartRanks(t *testing.T, n int, body func(w *Comm, win *Onesided, o *observed) error) {
	t.Helper()
	seen := make([]observed, 2)
	wrap := func(bc backend.Comm) backend.Comm { return apart{bc, &seen[bc.Rank()]} }
	ranksOn(t, 2, Options{Timeout: time.Hour, Schedules: true}, wrap, func(w *Comm) error {
		o := &seen[w.Rank()]
		win, err := w.NewOnesided(pair, n, nil)
		o.oneLimit(t, "newwindow")
		if err != nil {
			return err
		}
		return body(w, win, o)
	})
}

// oneLimit checks that all steps that were noted belong to one operation.
func (o *observed) oneLimit(t *testing.T, op string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.begun {
		if at != o.begun[0] || at.IsZero() {
			t.Errorf("%s: steps of one operation have begun at %v", op, o.begun)
			break
		}
	}
	o.begun = nil
}

// An update from another node waits for the update of a rank that is stopped. The target's other operations go on. If
// that rank is lost, the window fails with an error that names it.
func TestServerGoesOnBehindStoppedRank(t *testing.T) {
	for _, lost := range []bool{false, true} {
		apartRanks(t, 1, func(w *Comm, win *Onesided, o *observed) error {
			if w.Rank() == 1 {
				holdElements(&win.s.parts[1])
			}
			if err := barrier(w); err != nil {
				return err
			}
			if w.Rank() == 0 {
				if err := accumulate(win, 1); err != nil {
					return err
				}
			}
			err := barrier(w) // rank 0 or rank 1 makes the progress
			if w.Rank() == 1 && lost {
				o.lost.Store(true)
				for win.s.failure() == nil {
					runtime.Gosched()
				}
				o.lost.Store(false)
				if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrPeerLost) || !strings.Contains(err.Error(), "rank 7") {
					t.Errorf("after the loss: %v, want ErrPeerLost naming rank 7", err)
				}
			}
			if w.Rank() == 1 {
				locks := view.Of[word.Uint64](win.s.parts[1].Bytes(64, window.CellsHead-64))
				for i := range locks {
					locks[i].Store(0)
				}
			}
			if err = errors.Join(err, barrier(w)); lost || err != nil {
				return err
			}
			return errors.Join(win.Fence(), win.Close())
		})
	}
}

// The goroutine that makes progress carries out an update of one long element itself, unless another rank is in an
// update of the element.
func TestServerUpdatesLongElementInPlace(t *testing.T) {
	for _, c := range []struct {
		elems int
		held  bool
		want  error
	}{{1, false, nil}, {1, true, errWaits}, {2, false, errWaits}} {
		part := window.NewCells(view.Bytes(make([]uint64, window.CellsSize(32)/8)))
		s := &onesided{core: new(core), elem: pair, parts: []window.Cells{part}}
		if c.held {
			holdElements(&part)
		}
		view.Of[request](s.server.buf[:])[0] = request{kind: flight.Accumulate, op: backend.OpSum, at: window.CellsHead}
		in := view.Of[complex128](s.server.buf[requestSize : requestSize+16*c.elems])
		in[0] = 2 + 1i
		err := s.carryOut(backend.Status{Bytes: requestSize + 16*c.elems}, false)
		if has := view.Of[complex128](part.Bytes(window.CellsHead, 16))[0]; err != c.want || (has == 2+1i) != (err == nil) {
			t.Errorf("%d elements, held: %v: %v, want %v; the element is %v", c.elems, c.held, err, c.want, has)
		}
	}
}

// A server that waits for the lock of an element goes on when the communicator that its window is for is broken, so
// that the origin has its answer.
func TestServerGoesOnWhenCommunicatorBreaks(t *testing.T) {
	flushed := make(chan struct{})
	apartRanks(t, 1, func(w *Comm, win *Onesided, o *observed) error {
		if w.Rank() == 1 {
			defer close(flushed)
			err := errors.Join(barrier(w), accumulate(win, 0))
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			return errors.Join(err, win.WithContext(ctx).Flush(0))
		}
		holdElements(&win.s.parts[0])
		err := barrier(w)
		w.core.bc.Break(fault(backend.ErrTimeout, "a receive was given up"))
		time.Sleep(100 * time.Millisecond) // the server waits for the lock
		locks := view.Of[word.Uint64](win.s.parts[0].Bytes(64, window.CellsHead-64))
		for i := range locks {
			locks[i].Store(0)
		}
		<-flushed
		return err
	})
}

// After Lock has told that a rank is lost, no operation of the window succeeds.
func TestNoAccessSucceedsAfterLockHasToldALoss(t *testing.T) {
	apartRanks(t, 1, func(w *Comm, win *Onesided, o *observed) error {
		if w.Rank() == 1 {
			return errors.Join(win.Lock(window.Exclusive, 1), barrier(w), barrier(w))
		}
		err := barrier(w)
		o.lost.Store(true)
		if err := win.Lock(window.Shared, 1); !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("Lock: %v, want ErrPeerLost", err)
		}
		if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrPeerLost) {
			t.Errorf("an access after it: %v, want ErrPeerLost", err)
		}
		o.lost.Store(false)
		return errors.Join(err, barrier(w))
	})
}

// Test returns at the deadline of an Rput that does not end, and the window's operations end.
func TestRputThatDoesNotEndIsGivenUp(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		win, err := w.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		if err := win.begin(0); err != nil {
			return err
		}
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(context.Background())
		q := w.WithContext(ctx).newRequest("rput", flight.Put, pair, 16, 0, Undefined)
		q.op = win.s.begin(func(*Onesided) error {
			<-release
			return nil
		})
		win.s.origin.Leave()
		q.begin()
		cancel()
		if _, done, err := q.Test(); !done || !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("Test: %v, %v, want ErrCanceled", done, err)
		}
		if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("Put after it: %v, want ErrCanceled", err)
		}
		close(release)
		return nil
	})
}

// Comm.Close gives up waiting for an access. The access can still touch the memory.
func TestMemoryOfRunningAccessStaysMapped(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		win, err := d.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		if err := win.begin(0); err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
		if err := put(win, make([]byte, 16)); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Put after Close: %v", err)
		}
		in := bytes.Repeat([]byte{7}, 16)
		err = win.access(&Access{Kind: flight.Put, Disp: window.CellsHead, In: in})
		if got := win.s.parts[0].Bytes(window.CellsHead, 16); !bytes.Equal(got, in) {
			t.Errorf("the access that runs has written %v", got)
		}
		win.s.origin.Leave()
		return err
	})
}

// A shared window's Lock that does not return in time keeps the memory mapped, and its lock taken.
func TestMemoryOfRunningLockStaysMapped(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		win, err := w.Allocate(NewAllocation("test", pair, 1, false, nil))
		if err != nil {
			return err
		}
		part, err := win.Part("test", 0)
		if err != nil || !win.win.Enter() {
			return fmt.Errorf("the window is closed: %w", err)
		}
		if err := win.Close(); !errors.Is(err, backend.ErrBusy) {
			t.Errorf("Close returns %v, want ErrBusy", err)
		}
		part[0] = 1
		win.win.Leave()
		return win.Close()
	})
}

// Close of a communicator releases the locks that this rank holds of windows of both kinds, so that others get them.
func TestCloseOfCommunicatorReleasesLocks(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		a, err := d.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		b, err := d.Allocate(NewAllocation("test", pair, 1, false, nil))
		if err != nil {
			return err
		}
		if w.Rank() == 0 {
			_, err = b.Lock(window.Exclusive, 1)
			err = errors.Join(err, a.Lock(window.Exclusive, 1), d.Close())
		}
		if err := errors.Join(err, barrier(w)); err != nil || w.Rank() == 0 {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err = b.WithContext(ctx).Lock(window.Exclusive, 1)
		return errors.Join(err, a.WithContext(ctx).Lock(window.Exclusive, 1))
	})
}

// A goroutine waits for the lock of a window while its communicator is closed. It gets ErrClosed, and never the lock.
func TestLockEndsWhenCommunicatorIsClosed(t *testing.T) {
	ranks(t, 2, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		a, err := d.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		if w.Rank() == 1 {
			if err := errors.Join(a.Lock(window.Exclusive, 1), barrier(w), barrier(w), a.Unlock(1)); err != nil {
				return err
			}
			if s := view.Of[window.LockState](a.s.parts[1].Bytes(window.LockWord, 8))[0]; s != 0 {
				return fmt.Errorf("the lock is not free: %v", s)
			}
			return nil
		}
		if err := barrier(w); err != nil {
			return err
		}
		ended := make(chan error)
		go func() { ended <- a.Lock(window.Exclusive, 1) }()
		for held := window.Kind(0); held != waiting; {
			a.s.mu.Lock()
			held = a.s.held[1]
			a.s.mu.Unlock()
		}
		if err := d.Close(); err != nil {
			return err
		}
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("Lock: %v, want ErrClosed", err)
		}
		return barrier(w)
	})
}

// An update of a long element waits for the update of a rank that is stopped. It ends at its deadline, and when the
// communicator is closed.
func TestUpdateBehindStoppedRankEnds(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		win, err := d.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		holdElements(&win.s.parts[0])
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		if err := accumulate(win.WithContext(ctx), 0); !errors.Is(err, backend.ErrTimeout) {
			t.Errorf("after the deadline: %v, want ErrTimeout", err)
		}
		ended := make(chan error)
		go func() { ended <- accumulate(win, 0) }()
		time.Sleep(time.Millisecond) // usually the access has begun then
		if err := d.Close(); err != nil {
			return err
		}
		if err := <-ended; !errors.Is(err, backend.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
		return nil
	})
}

// A goroutine makes a window while another one closes the communicator. Either the window is not made, or Close has
// closed it.
func TestWindowMadeDuringCloseIsClosed(t *testing.T) {
	ranks(t, 1, func(w *Comm) error {
		for range 300 {
			d, err := dup(w)
			if err != nil {
				return err
			}
			ended := make(chan error)
			go func() { ended <- d.Close() }()
			win, err := d.NewOnesided(pair, 1, nil)
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
// holds is released nevertheless, in memory that is still mapped.
func TestWindowAndCommunicatorCloseAtOnce(t *testing.T) {
	shortenQuiesce(t)
	ranks(t, 1, func(w *Comm) error {
		d, err := dup(w)
		if err != nil {
			return err
		}
		win, err := d.NewOnesided(pair, 1, nil)
		if err != nil {
			return err
		}
		if err := errors.Join(win.Lock(window.Exclusive, 0), win.begin(0)); err != nil {
			return err
		}
		ended := make(chan error)
		go func() { ended <- win.Close() }() // waits for the access that has begun
		for win.begin(0) == nil {
			win.s.origin.Leave()
		}
		if err := d.Close(); err != nil {
			return err
		}
		win.s.origin.Leave()
		if err := <-ended; !errors.Is(err, backend.ErrWin) {
			t.Errorf("Close of the window: %v, want ErrWin", err)
		}
		if s := view.Of[window.LockState](win.s.parts[0].Bytes(window.LockWord, 8))[0]; s != 0 {
			t.Errorf("the lock is not free: %v", s)
		}
		return nil
	})
}
