package comm

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/window"
)

// Window is a handle of a window. It may be nil.
type Window struct {
	c      *Comm
	win    *window.Window
	number int // among those of the communicator
}

var (
	errNoWindow = fault(backend.ErrWin, "the window is nil")
	errNoLock   = fault(backend.ErrWin, "the lock is nil")
)

// Failed wraps the error of an operation. It returns nil for nil.
func (w *Window) Failed(op string, peer int, err error) error {
	switch {
	case err == nil:
		return nil
	case w == nil:
		return (*Comm)(nil).Failed(op, peer, Undefined, err)
	}
	return w.c.Failed(op, peer, Undefined, err)
}

// WithContext returns a handle of the same window whose operations end when ctx does.
func (w *Window) WithContext(ctx context.Context) *Window {
	if w == nil {
		return nil
	}
	return &Window{w.c.WithContext(ctx), w.win, w.number}
}

// Size returns the length in bytes of the part of a rank, 0 for a rank that does not exist.
func (w *Window) Size(rank int) int {
	if w == nil {
		return 0
	}
	return w.win.Size(rank)
}

// Part returns the part of a rank, or the caller's for Undefined.
func (w *Window) Part(op string, rank int) ([]byte, error) {
	if w == nil {
		return nil, w.Failed(op, rank, errNoWindow)
	}
	part := rank
	if rank == Undefined {
		part = w.c.core.rank
	}
	b, err := w.win.Part(part)
	if err != nil {
		return nil, w.Failed(op, rank, err)
	}
	return b, nil
}

// Sync is a memory barrier.
func (w *Window) Sync() error {
	if w == nil {
		return w.Failed("sync", Undefined, errNoWindow)
	}
	return w.Failed("sync", Undefined, w.win.Sync())
}

// Fence waits until all ranks have called it, and is a memory barrier before and after.
func (w *Window) Fence() error {
	if w == nil {
		return w.Failed("fence", Undefined, errNoWindow)
	}
	err := w.win.Sync()
	if err == nil {
		err = w.c.take()
	}
	if err == nil {
		err = w.c.arrive(fenceCall, w.number, w.win.Unlocked())
		w.c.core.life.leave()
	}
	if err != nil {
		return w.Failed("fence", Undefined, err)
	}
	_ = w.win.Sync() // fails only if the caller has closed the window meanwhile
	return nil
}

// arrive waits until all ranks make the same call on a window. bad is an argument error of this rank. The
// caller has taken the communicator.
func (c *Comm) arrive(typ *backend.Datatype, window int, bad error) error {
	k := c.core
	k.call.Coll, k.call.Type, k.call.Root, k.call.Err = backend.Barrier, typ, window, bad
	return k.do(c.begun().bound)
}

// Close releases the window on this rank. If it belongs to a library, the ranks close it together.
func (w *Window) Close() error {
	if w == nil {
		return nil
	}
	k := w.c.core
	if w.win.Together() {
		if !k.life.changes.Enter() {
			return nil // the communicator's Close closes the window
		}
		defer k.life.changes.Leave()
		switch err := w.c.take(); err {
		case nil:
			defer k.life.leave()
		case errClosed:
			return nil
		default:
			return w.Failed("close", Undefined, err)
		}
	}
	k.mu.Lock()
	k.windows = slices.DeleteFunc(k.windows, func(o *Window) bool { return o.win == w.win })
	k.mu.Unlock()
	return w.Failed("close", Undefined, w.win.Close(QuiesceFor, func(bad error) error { return w.c.arrive(closeCall, w.number, bad) }))
}

// add makes Close of the communicator close a window. It returns false if Close has the windows already.
func (k *core) add(w *Window) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.swept {
		k.windows = append(k.windows, w)
	}
	return !k.swept
}

// closeWindows closes the windows in the order in which they were made, which is the same on all ranks. free says
// that this goroutine has taken the communicator; otherwise another one is still in a collective, which excludes a
// second one.
func (k *core) closeWindows(open []*Window, free bool, end time.Time) {
	if soon := time.Now().Add(graceFor); end.Before(soon) {
		end = soon
	}
	slices.SortFunc(open, func(a, b *Window) int { return cmp.Compare(a.number, b.number) })
	for _, w := range open {
		_ = w.win.Close(left(end), func(bad error) error { // a lock that is still held does not matter now
			if !free {
				return errInCollective
			}
			return k.home.arrive(closeCall, w.number, bad)
		})
	}
}

// graceFor is how long a window's users have to notice that it is being closed, however late it is. Those that
// wait for a lock look every millisecond.
const graceFor = 100 * time.Millisecond

// Guard is the lock that the calling rank holds on the part of a rank, or on all parts.
type Guard struct {
	w      *Window
	rank   int // allParts: all
	ticket uint64
}

const allParts = -1

// Lock waits until the calling rank holds the lock of a rank's part.
func (w *Window) Lock(kind window.Kind, rank int) (g Guard, err error) {
	if w == nil {
		return g, w.Failed("lock", rank, errNoWindow)
	}
	k := w.c.core
	err = k.traced(k.numbered(flight.Lock, rank, uint32(w.number)), func() (err error) {
		g = Guard{w: w, rank: rank}
		g.ticket, err = w.win.Lock(w.c.bound, kind, rank)
		return err
	})
	if err != nil {
		return Guard{}, w.Failed("lock", rank, err)
	}
	return g, nil
}

// LockAll waits until the calling rank holds a shared lock of every part.
func (w *Window) LockAll() (g Guard, err error) {
	if w == nil {
		return g, w.Failed("lockall", Undefined, errNoWindow)
	}
	k := w.c.core
	err = k.traced(k.numbered(flight.LockAll, Undefined, uint32(w.number)), func() (err error) {
		g = Guard{w: w, rank: allParts}
		g.ticket, err = w.win.LockAll(w.c.bound)
		return err
	})
	if err != nil {
		return Guard{}, w.Failed("lockall", Undefined, err)
	}
	return g, nil
}

// Flush is Sync under the lock, for the part of a rank. peer is the rank that an error names.
func (g *Guard) Flush(op string, rank, peer int) error {
	if g == nil || g.w == nil {
		return (*Window)(nil).Failed(op, peer, errNoLock)
	}
	return g.w.Failed(op, peer, g.w.win.Flush(rank, max(g.rank, 0), g.ticket))
}

// Rank returns the rank whose part is locked, Undefined for all or none.
func (g *Guard) Rank() int {
	if g == nil || g.w == nil || g.rank == allParts {
		return Undefined
	}
	return g.rank
}

// Unlock makes the calling rank's writes visible to the next holders and releases the lock.
func (g *Guard) Unlock() error {
	if g == nil || g.w == nil {
		return (*Window)(nil).Failed("unlock", Undefined, errNoLock)
	}
	return g.w.Failed("unlock", g.Rank(), g.w.win.Unlock(max(g.rank, 0), g.ticket))
}
