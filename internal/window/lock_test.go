package window

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/backend/local"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// windows returns the ends of a window of n ranks, of which each part has 8 bytes,
// and their communicators.
func windows(t *testing.T, n int) ([]*Window, []backend.Comm) {
	t.Helper()
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 8
	}
	lay, ok := Apart(sizes, shmem.PageSize)
	if !ok {
		t.Fatal("no layout")
	}
	mem, err := shmem.Anonymous(lay.Total)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	comms := local.New(n)
	all := make([]*Window, n)
	for r, c := range comms {
		all[r] = New(c, lasting{mem}, lay)
		t.Cleanup(func() { c.Close() })
	}
	return all, comms
}

// lasting is memory that others close.
type lasting struct{ *shmem.Area }

func (lasting) Close() error { return nil }

func shut(w *Window) error { return w.Close(time.Minute, nil) }

// Every pair of kinds is tried.
func TestExclusiveLockExcludesAllOthers(t *testing.T) {
	soon := &backend.Bound{Timeout: time.Millisecond}
	for _, first := range []Kind{Shared, Exclusive} {
		for _, second := range []Kind{Shared, Exclusive} {
			w, _ := windows(t, 2)
			one, err := w[0].Lock(nil, first, 1)
			if err != nil {
				t.Fatal(err)
			}
			two, err := w[1].Lock(soon, second, 1)
			if both := first == Shared && second == Shared; both != (err == nil) || !both && !errors.Is(err, backend.ErrTimeout) {
				t.Errorf("%v after %v: %v", second, first, err)
			}
			if err == nil {
				if err := w[1].Unlock(1, two); err != nil {
					t.Error(err)
				}
			}
			if err := w[0].Unlock(1, one); err != nil {
				t.Error(err)
			}
			if w[0].locks[1].state.Load() != 0 || w[0].locks[1].wanted.Load() != 0 || w[0].locks[1].bell.Armed() {
				t.Errorf("%v, %v: the lock is not free: %+v", first, second, w[0].locks[1].holder())
			}
		}
	}
}

// While a call waits for an exclusive lock, no later call gets a shared one.
func TestExclusiveLockGoesBeforeLaterSharedOnes(t *testing.T) {
	w, _ := windows(t, 3)
	reader, err := w[0].Lock(nil, Shared, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var writer sync.WaitGroup
	writer.Go(func() {
		if _, err := w[1].Lock(&backend.Bound{Ctx: ctx}, Exclusive, 0); !errors.Is(err, backend.ErrCanceled) {
			t.Errorf("the writer: %v", err)
		}
	})
	for w[0].locks[0].wanted.Load() == 0 {
		shmem.Yield()
	}
	if _, err := w[2].Lock(&backend.Bound{Timeout: time.Millisecond}, Shared, 0); !errors.Is(err, backend.ErrTimeout) ||
		!strings.Contains(err.Error(), "held shared 1 time") {
		t.Errorf("another reader: %v", err)
	}
	cancel()
	writer.Wait()
	another, err := w[2].Lock(nil, Shared, 0) // the writer has given up
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w[0].Unlock(0, reader), w[2].Unlock(0, another)); err != nil {
		t.Error(err)
	}
}

// TestFailedLockAllReleasesItsLocks has LockAll fail on the last part: the first ones are free
// again.
func TestFailedLockAllReleasesItsLocks(t *testing.T) {
	w, _ := windows(t, 3)
	if _, err := w[0].Lock(nil, Exclusive, 2); err != nil {
		t.Fatal(err)
	}
	_, err := w[1].LockAll(&backend.Bound{Timeout: time.Millisecond})
	if !errors.Is(err, backend.ErrTimeout) || !strings.Contains(err.Error(), "rank 2's part: rank 0 holds it") {
		t.Errorf("LockAll: %v", err)
	}
	for r := range 2 {
		if _, err := w[2].Lock(nil, Exclusive, r); err != nil {
			t.Error(err)
		}
	}
	if w[1].Unlocked() != nil {
		t.Error("there is something left of LockAll")
	}
}

// TestLocksOfBrokenCommunicatorStayTaken has waiters and leavers of a broken communicator.
func TestLocksOfBrokenCommunicatorStayTaken(t *testing.T) {
	w, comms := windows(t, 2)
	if _, err := w[0].Lock(nil, Exclusive, 0); err != nil {
		t.Fatal(err)
	}
	var waiter sync.WaitGroup
	waiter.Go(func() {
		if _, err := w[1].Lock(nil, Shared, 0); !errors.Is(err, backend.ErrBroken) || !strings.Contains(err.Error(), "out of order") {
			t.Errorf("the waiting Lock: %v", err)
		}
	})
	comms[0].Break(fmt.Errorf("%w: out of order", backend.ErrMismatch))
	if err := shut(w[0]); !errors.Is(err, backend.ErrWin) {
		t.Errorf("Close: %v", err)
	}
	waiter.Wait() // it did not get the lock, which was not released
	if err := errors.Join(shut(w[0]), shut(w[1])); err != nil {
		t.Error(err)
	}
}

// TestCallsDuringCloseSucceedOrReportClosed has calls of all kinds run beside Close: they succeed or tell
// that the window is closed.
func TestCallsDuringCloseSucceedOrReportClosed(t *testing.T) {
	for range 100 {
		w, _ := windows(t, 2)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for {
					if ticket, err := w[0].Lock(nil, Kind(1+i%2), i%2); err == nil {
						if err := w[0].Unlock(i%2, ticket); err != nil && !errors.Is(err, backend.ErrClosed) {
							t.Error("Unlock:", err)
						}
					} else if !errors.Is(err, backend.ErrClosed) && !errors.Is(err, backend.ErrWin) {
						t.Error("Lock:", err)
					}
					if p, err := w[0].Part(i % 2); err != nil || len(p) != 8 {
						if !errors.Is(err, backend.ErrClosed) {
							t.Errorf("Part: %d bytes, %v", len(p), err)
						}
						return
					}
				}
			})
		}
		if err := shut(w[0]); err != nil && !errors.Is(err, backend.ErrWin) {
			t.Error("Close:", err)
		}
		all.Wait()
		if s := w[1].locks[0].state.Load() | w[1].locks[1].state.Load(); s != 0 {
			t.Errorf("after Close a lock is taken: %#x", s)
		}
	}
}

// TestRanksCloseCollectiveMemoryTogether has a memory that ranks close together.
func TestRanksCloseCollectiveMemoryTogether(t *testing.T) {
	lay, _ := Apart([]int{8}, shmem.PageSize)
	for _, fails := range []error{nil, backend.ErrBroken} {
		area, err := shmem.Anonymous(lay.Total)
		if err != nil {
			t.Fatal(err)
		}
		m := &together{Area: area}
		w := New(local.New(1)[0], m, lay)
		if !w.Together() {
			t.Error("Together is false")
		}
		met := 0
		for range 2 {
			err := w.Close(time.Minute, func(error) error {
				met++
				if w.Sync() == nil {
					t.Error("the window is open while the ranks wait for each other")
				}
				return fails
			})
			if want := fails; met == 1 && !m.again && !errors.Is(err, want) {
				t.Errorf("Close: %v, want %v", err, want)
			}
			m.again = true
		}
		if met != 1 || m.closed != (fails == nil) || m.abandoned != (fails != nil) {
			t.Errorf("met %d times, closed %v, abandoned %v after %v", met, m.closed, m.abandoned, fails)
		}
		area.Close()
	}
}

type together struct {
	*shmem.Area
	again, closed, abandoned bool
}

func (m *together) Close() error {
	m.closed = true
	return nil
}

func (m *together) Joint() bool { return true }

func (m *together) Abandon() { m.abandoned = true }
