package cohort

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
)

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

func (c *joint) Derive(members []int, id uint32) (backend.Comm, error) {
	d, err := c.Comm.Derive(members, id)
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
		return nil, errors.Join(fault(ErrAlloc, "the test's limit"), mem.Close())
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

func (m *jointMemory) Close() error {
	if m.c.of.closing != nil {
		m.c.of.closing()
	}
	if m.c.ended.Load() || m.c.of.world.ended.Load() {
		m.c.of.early.Add(1)
	}
	return m.Memory.Close()
}

func (m *jointMemory) Joint() bool { return true }

func (m *jointMemory) Abandon() {
	m.c.of.abandoned.Add(1)
	_ = m.Memory.Close()
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
			errs := worlds(len(of), settings{}, func(bc backend.Comm) backend.Comm {
				r := &of[bc.Rank()]
				r.world = &joint{Comm: bc, of: r}
				return r.world
			}, func(w *Comm) error {
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
					time.Sleep(100 * time.Millisecond)
				}
				go func() { ended <- begin() }()
				<-inside
				return errors.Join(end(), <-ended)
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
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
	errs := worlds(len(of), settings{}, func(bc backend.Comm) backend.Comm {
		r := &of[bc.Rank()]
		r.world = &joint{Comm: bc, of: r}
		return r.world
	}, func(w *Comm) error {
		win, err := AllocateShared[int](w, 1)
		if err != nil {
			return err
		}
		var closed error
		of[w.Rank()].closing = func() { closed = w.Close() }
		return errors.Join(win.Close(), closed)
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if of[0].early.Load() != 1 || of[1].early.Load() != 1 {
		t.Errorf("windows closed after the world: %d and %d, want 1 each", of[0].early.Load(), of[1].early.Load())
	}
}

// A rank closes the communicator after the ranks have begun to agree on a window. Close waits, and all
// ranks make the window. A rank that made it alone would wait for the others in the library.
func TestCloseWaitsForAllocateShared(t *testing.T) {
	var of [2]jointRank
	errs := worlds(len(of), settings{}, func(bc backend.Comm) backend.Comm {
		r := &of[bc.Rank()]
		r.world = &joint{Comm: bc, of: r}
		return r.world
	}, func(w *Comm) error {
		ended := make(chan error, 1)
		if w.Rank() == 0 {
			of[0].sparing = func() {
				go func() { ended <- w.Close() }()
				for w.base().Usable() == nil {
					time.Sleep(time.Millisecond)
				}
			}
		} else {
			ended <- nil
		}
		_, err := AllocateShared[int](w, 1)
		return errors.Join(err, <-ended, w.Close())
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	if a, b := of[0].shared.Load(), of[1].shared.Load(); a != b {
		t.Errorf("rank 0 made %d windows, rank 1 made %d", a, b)
	}
}
