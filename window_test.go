package cohort

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/test/must"
)

// Slurm gives the job less memory than this process already uses, and then more than any machine has.
func TestWindowsStayWithinTheJobsLimit(t *testing.T) {
	t.Setenv("SLURM_JOB_ID", "7")
	t.Setenv("SLURM_NODEID", "0")
	for limit, enough := range map[string]bool{"1": false, "1000000000": true} {
		t.Setenv("SLURM_MEM_PER_NODE", limit)
		ranks(t, 2, func(c *Comm) error {
			w, errWindow := AllocateShared[byte](c, 1)
			g, errRegion := NewSharedRegion[byte](c, 1)
			for _, err := range []error{errWindow, errRegion} {
				if enough && err != nil || !enough && (!errors.Is(err, ErrAlloc) || !strings.Contains(err.Error(), "SLURM_MEM_PER_NODE gives the job 1 MiB")) {
					return fmt.Errorf("one byte where the job has %s MiB: %v", limit, err)
				}
			}
			must.OK(errors.Join(w.Close(), g.Close()))
			return nil
		})
	}
}

// A long access of memory looks whether its time is over. One that is over before it begins stops early.
func TestLongAccessEndsWithItsContext(t *testing.T) {
	const n = 3<<20 + 8 // bytes: several pieces, the last one short
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	ranks(t, 2, func(c *Comm) error {
		w := must.Get(AllocateShared[int64](c, n/8))
		data, result := make([]int64, n/8), make([]int64, n/8)
		for i := range data {
			data[i] = int64(i + 1)
		}
		must.OK(c.Barrier())
		if c.Rank() == 0 {
			late := w.WithContext(ended)
			for op, access := range map[string]func(w *Window[int64]) error{
				"put":            func(w *Window[int64]) error { return w.Put(data, 1, 0) },
				"get":            func(w *Window[int64]) error { return w.Get(result, 1, 0) },
				"accumulate":     func(w *Window[int64]) error { return w.Accumulate(data, 1, 0, Sum) },
				"get accumulate": func(w *Window[int64]) error { return w.GetAccumulate(data, result, 1, 0, Sum) },
			} {
				if err := access(late); !errors.Is(err, ErrCanceled) {
					t.Errorf("%s of %d bytes whose context has ended: %v", op, n, err)
				}
				must.OK(access(w))
			}
			must.OK(w.Put(data, 1, 0)) // whatever was updated
			must.OK(w.GetAccumulate(data, result, 1, 0, Sum))
			last := make([]int64, n/8)
			must.OK(w.Get(last, 1, 0))
			for i := range data {
				if result[i] != data[i] || last[i] != 2*data[i] {
					return fmt.Errorf("element %d: was %d, is %d, want %d and %d", i, result[i], last[i], data[i], 2*data[i])
				}
			}
		}
		must.OK(c.Barrier())
		return w.Close()
	})
}

func TestNilWindowReturnsErrWin(t *testing.T) {
	var w *Window[int]
	w = w.WithContext(context.Background())
	_, err1 := w.Local()
	_, err2 := w.Remote(0)
	_, err3 := w.Lock(LockShared, 0)
	_, err4 := w.LockAll()
	var r *SharedRegion[int]
	_, err5 := r.Slice()
	_, err6 := r.MutSlice()
	_, err7 := r.Range(0, 0)
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, w.Put(nil, 0, 0), w.Fence(), w.Sync(), r.Fence(),
		(*LockGuard)(nil).Flush(), (*LockGuard)(nil).Unlock(), (*LockAllGuard)(nil).Flush(0),
		(*LockAllGuard)(nil).FlushAll(), (*LockAllGuard)(nil).Unlock()} {
		if !errors.Is(err, ErrWin) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := errors.Join(w.Close(), r.Close()); err != nil || r.IsLeader() || r.Node() != nil {
		t.Error("a nil region:", err)
	}
}

// joint is a local backend whose windows are closed collectively, like those of an MPI library.
type joint struct {
	backend.Comm
	of    *jointRank
	ended atomic.Bool
}

// jointRank is the state that the communicators of one rank share.
type jointRank struct {
	world     *joint
	lacks     bool   // Share fails on this rank
	closing   func() // called while a window is closed
	sparing   func() // called in Available, when the ranks have exchanged the sizes of a window
	shared    atomic.Int32
	early     atomic.Int32 // windows closed after their communicator
	abandoned atomic.Int32
}

// jointWorld makes the worlds of ranks with these states.
func jointWorld(of []jointRank) func(bc backend.Comm) backend.Comm {
	return func(bc backend.Comm) backend.Comm {
		r := &of[bc.Rank()]
		r.world = &joint{Comm: bc, of: r}
		return r.world
	}
}

func (c *joint) Derive(b *backend.Bound, members []int, id uint32) (backend.Comm, error) {
	d, err := c.Comm.Derive(b, members, id)
	return &joint{Comm: d, of: c.of}, err
}

func (c *joint) Close() error {
	c.ended.Store(true)
	return c.Comm.Close()
}

func (c *joint) Share(b *backend.Bound, size int, tell backend.Publish) (backend.Memory, error) {
	c.of.shared.Add(1)
	mem, err := c.Comm.(backend.Sharing).Share(b, size, tell)
	if err == nil && c.of.lacks {
		return nil, errors.Join(fault(ErrAlloc, "the test's limit"), mem.Close(nil))
	}
	return &jointMemory{mem, c}, err
}

func (c *joint) Available() (int64, string) {
	if c.of.sparing != nil {
		c.of.sparing()
	}
	return 1 << 30, "the test's limit"
}

type jointMemory struct {
	backend.Memory
	c *joint
}

func (m *jointMemory) Close(b *backend.Bound) error {
	if m.c.of.closing != nil {
		m.c.of.closing()
	}
	if m.c.ended.Load() || m.c.of.world.ended.Load() {
		m.c.of.early.Add(1)
	}
	return m.Memory.Close(b)
}

func (m *jointMemory) Joint() bool { return true }

func (m *jointMemory) Abandon() {
	m.c.of.abandoned.Add(1)
	_ = m.Memory.Close(nil)
}

// A goroutine closes a window, or fails to make one, while another goroutine closes the communicator or
// the world. That Close waits, and the ranks close the windows collectively.
func TestCloseWaitsForWindowsBeingClosed(t *testing.T) {
	allocate := func(c *Comm) (*Window[int], error) { return AllocateShared[int](c, 1) }
	for _, test := range []struct {
		name  string
		lacks bool
		// On rank 0 a second goroutine calls begin, and the rank calls end meanwhile.
		make func(w *Comm) (begin, end func() error, err error)
	}{
		{"a window", false, func(w *Comm) (begin, end func() error, err error) {
			a, err := allocate(w)
			if err == nil {
				_, err = allocate(w) // left to Close
			}
			return a.Close, w.Close, err
		}},
		{"a window of another communicator", false, func(w *Comm) (begin, end func() error, err error) {
			d, err := w.Dup()
			if err != nil {
				return nil, nil, err
			}
			a, err := allocate(d)
			return a.Close, d.Close, err
		}},
		{"another communicator and the world", false, func(w *Comm) (begin, end func() error, err error) {
			d, err := w.Dup()
			if err == nil {
				_, err = allocate(d)
			}
			return d.Close, w.Close, err
		}},
		{"a window that a rank cannot have", true, func(w *Comm) (begin, end func() error, err error) {
			return func() error {
				_, err := allocate(w)
				return wantErr("AllocateShared", err, ErrAlloc)
			}, w.Close, nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var of [2]jointRank
			of[1].lacks = test.lacks
			onWorlds(t, len(of), settings{}, jointWorld(of[:]), func(w *Comm) error {
				begin, end, err := test.make(w)
				if err != nil || w.Rank() != 0 {
					return errors.Join(err, begin())
				}
				inside, ended, begun := make(chan struct{}), make(chan error), atomic.Bool{}
				of[0].closing = func() {
					if begun.Swap(true) {
						return
					}
					close(inside)
					// Give end time to close the communicator too early. The test passes if it does not use it.
					time.Sleep(100 * time.Millisecond) // on purpose: time in which end could close the communicator too early
				}
				go func() { ended <- begin() }()
				<-inside
				return errors.Join(end(), <-ended)
			})
			for r := range of {
				if early, abandoned := of[r].early.Load(), of[r].abandoned.Load(); early != 0 || abandoned != 0 {
					t.Errorf("rank %d: %d windows closed after their communicator, %d abandoned", r, early, abandoned)
				}
			}
		})
	}
}

// shortenQuiesce shortens the time that Close waits for windows until the test ends. The test must not
// be parallel.
func shortenQuiesce(t *testing.T) {
	whole := comm.QuiesceFor
	comm.QuiesceFor = 100 * time.Millisecond
	t.Cleanup(func() { comm.QuiesceFor = whole })
}

// Close is called from within the closing of a window, which therefore waits for Close. Close stops
// waiting for the window after comm.QuiesceFor.
func TestCloseWithinWindowCloseReturns(t *testing.T) {
	shortenQuiesce(t)
	var of [2]jointRank
	onWorlds(t, len(of), settings{}, jointWorld(of[:]), func(w *Comm) error {
		win := must.Get(AllocateShared[int](w, 1))
		var closed error
		of[w.Rank()].closing = func() { closed = w.Close() }
		return errors.Join(win.Close(), closed)
	})
	if of[0].early.Load() != 1 || of[1].early.Load() != 1 {
		t.Errorf("windows closed after the world: %d and %d, want 1 each", of[0].early.Load(), of[1].early.Load())
	}
}

// A rank closes the communicator after the ranks have begun to agree on a window. Close waits, and all
// ranks make the window. A rank that made it alone would wait for the others in the library.
func TestCloseWaitsForAllocateShared(t *testing.T) {
	var of [2]jointRank
	onWorlds(t, len(of), settings{}, jointWorld(of[:]), func(w *Comm) error {
		ended := make(chan error, 1)
		if w.Rank() == 0 {
			of[0].sparing = func() {
				go func() { ended <- w.Close() }()
				for w.base().Usable() == nil {
					time.Sleep(time.Millisecond) // poll
				}
			}
		} else {
			ended <- nil
		}
		_, err := AllocateShared[int](w, 1)
		return errors.Join(err, <-ended, w.Close())
	})
	if a, b := of[0].shared.Load(), of[1].shared.Load(); a != b {
		t.Errorf("rank 0 made %d windows, rank 1 made %d", a, b)
	}
}

// late is a local backend. On rank 1, the first Probe after Share reports a timeout.
type late struct {
	backend.Comm
	shared atomic.Bool
}

func (c *late) Share(b *backend.Bound, size int, tell backend.Publish) (backend.Memory, error) {
	mem, err := c.Comm.(backend.Sharing).Share(b, size, tell)
	c.shared.Store(true)
	return mem, err
}

func (c *late) Available() (int64, string) { return -1, "" }

func (c *late) Probe(b *backend.Bound, source, tag int, block bool) (backend.Status, bool, error) {
	if c.Rank() == 1 && c.shared.Swap(false) {
		return backend.Status{}, false, fault(ErrTimeout, "the test's limit")
	}
	return c.Comm.Probe(b, source, tag, block)
}

// If a rank is interrupted while it touches the memory of a window, all ranks return the same
// error, and the communicator stays usable.
func TestInterruptedAllocationFailsOnAllRanks(t *testing.T) {
	onWorlds(t, 3, settings{}, func(bc backend.Comm) backend.Comm { return &late{Comm: bc} }, func(w *Comm) error {
		_, err := AllocateShared[int](w, 1)
		if wantErr("AllocateShared", err, ErrTimeout) != nil || !strings.Contains(err.Error(), "rank 1: timed out: the test's limit") {
			return errors.Join(errors.New("want ErrTimeout of rank 1"), err)
		}
		return w.Barrier()
	})
}

// Flush waits for an Rput under way, and goes on when it is done, although nothing else happens.
func TestFlushGoesOnAfterRput(t *testing.T) {
	g, late := new(gate), make(chan struct{})
	g.before = func() { <-late }
	gatedWindow(t, g, func(c *Comm, w *Window[int]) error {
		if c.Rank() == 1 {
			return nil
		}
		q, err := w.Rput([]int{1}, 1, 0)
		if err != nil {
			return err
		}
		time.AfterFunc(10*time.Millisecond, func() { close(late) }) // usually Flush waits then
		err = w.Flush(1)
		_, e := q.Wait()
		return errors.Join(err, e)
	})
}
