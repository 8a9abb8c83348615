package cohort

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/window"
)

// joint is a local backend whose windows the ranks close together, as a library's are.
type joint struct {
	backend.Comm
	of    *jointRank
	ended atomic.Bool
}

// jointRank is what a test has to do with the communicators of one rank.
type jointRank struct {
	world     *joint
	lacks     bool   // what the others have
	closing   func() // called while a window is closed
	sparing   func() // called when the ranks have agreed on what window they want
	shared    atomic.Int32
	early     atomic.Int32
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
	mem, err := c.Comm.(backend.Sharer).Share(b, size, tell)
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

func (m *jointMemory) Abandon() {
	m.c.of.abandoned.Add(1)
	_ = m.Memory.Close()
}

// Windows that a goroutine is closing, or cannot have, while another one closes the
// communicator, or the world: it waits, and the ranks close them together.
func TestCloseBesideWindows(t *testing.T) {
	allocate := func(c *Comm) (*SharedWindow[int], error) { return AllocateShared[int](c, 1) }
	for _, test := range []struct {
		name  string
		lacks bool
		// make makes what begin closes in a goroutine of its own while rank 0 calls end.
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
				return wants("AllocateShared", err, ErrAlloc)
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
					// Close has time to do what it must not do; that it takes none is no matter.
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

// A Close that its own window waits for does not wait for the window for ever.
func TestCloseWithinWindowClose(t *testing.T) {
	t.Parallel() // most of it is waiting
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

// The world's Close waits for the windows of all communicators together as long as for those of one.
func TestCloseBesideManyWindows(t *testing.T) {
	t.Parallel() // all of it is waiting
	errs := worlds(1, settings{}, func(bc backend.Comm) backend.Comm { return bc }, func(w *Comm) error {
		for range 10 {
			d, err := w.Dup()
			if err != nil {
				return err
			}
			d.core.beginChange() // a window that never ends
		}
		begun := time.Now()
		err := w.Close()
		if took := time.Since(begun); took > 4*quiesceFor {
			return fmt.Errorf("Close took %v, which waits %v at most", took, quiesceFor)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// A rank closes the communicator when the ranks have begun to agree on a window: they make it all the same, and Close
// waits. Who made it alone would wait for the others in the library.
func TestCloseBesideAllocate(t *testing.T) {
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
				for !w.core.closed.Load() {
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
		t.Errorf("rank 0 has made %d windows, rank 1 %d", a, b)
	}
}

// A rank that is alone and gets no memory has none: what stands for that in make and abandon is nil.
func TestNoMemoryAlone(t *testing.T) {
	if err := Run(t.Context(), 1, func(c *Comm) error {
		a := &allocation{c: c, lay: window.Layout{Total: math.MaxInt/2 + 1}}
		if mem, err := a.memory(); err == nil || mem != nil {
			return fmt.Errorf("memory %v, error %v", mem, err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
