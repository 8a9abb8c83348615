package cohort

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
)

// SharedWindow is memory that the ranks of a node have in common: every rank has a
// part of it, and reads and writes the parts of all in place (MPI-4.1 section
// 12.2.3). It lies outside the Go heap, and each part near the rank that it
// belongs to.
//
// What one rank writes another sees after both have called Fence; or after the
// one has called Unlock and then the other Lock; or, where the ranks tell each
// other by messages, after the one has called Sync and sent, and the other has
// received and called Sync. Ranks that read what others write at the same time see
// anything.
//
// A window can be used by many goroutines at once; Fence and Close are
// collectives of the communicator it was made from. Its operations end as that
// communicator's do, at deadlines too.
//
// Slices of a window are valid until Close. One that is used later faults, which
// ends the program: it never leads to other memory, unless very many windows have
// been closed since.
type SharedWindow[T any] struct{ s *shared }

// shared is a window of any type; a nil one is in order.
type shared struct {
	c      *Comm
	win    *window.Window
	number int // among those of the communicator
}

// base returns what is the same for all types, nil for a nil window.
func (w *SharedWindow[T]) base() *shared {
	if w == nil {
		return nil
	}
	return w.s
}

// AllocateShared makes a window in which the calling rank's part has n elements.
// n may differ between ranks and be 0. All elements are zero. Every rank touches
// its own part first, so that it is in the NUMA domain where the caller runs.
//
// Collective: all ranks of c call it, with the same T. They are on one node
// ([Comm.SplitShared]); where ranks have no memory in common, each is a node of
// its own.
//
// Errors: [ErrCount] for a negative n, [ErrType]; [ErrComm] if c spans nodes;
// [ErrAlloc] on every rank if the memory cannot be had, with the size asked for and
// what limits it; [ErrMismatch] on every rank if the types differ.
func AllocateShared[T any](c *Comm, n int) (*SharedWindow[T], error) {
	s, err := allocate[T](c, "AllocateShared", n, false)
	if err != nil {
		return nil, c.failed("allocateshared", Undefined, Undefined, err)
	}
	return &SharedWindow[T]{s}, nil
}

// WithContext returns a handle of the same window whose operations end when ctx
// does, as [Comm.WithContext] does for a communicator: a Lock, for one, with a
// deadline. It needs no closing of its own; Close on it closes the window.
func (w *SharedWindow[T]) WithContext(ctx context.Context) *SharedWindow[T] {
	s := w.base()
	if s == nil {
		return w
	}
	return &SharedWindow[T]{&shared{s.c.WithContext(ctx), s.win, s.number}}
}

// Local returns the calling rank's part, to read and to write.
//
// Errors: [ErrClosed].
func (w *SharedWindow[T]) Local() ([]T, error) { return part[T](w.base(), "local", -1) }

// Remote returns the part of any rank, to read and to write in place.
//
// Errors: [ErrClosed]; [ErrRank] for a rank outside the communicator.
func (w *SharedWindow[T]) Remote(rank int) ([]T, error) {
	if rank < 0 {
		return nil, w.base().failed("remote", rank, fault(ErrRank, "a rank below 0"))
	}
	return part[T](w.base(), "remote", rank)
}

// Size returns the number of elements in the part of a rank: what that rank passed to
// [AllocateShared]. It is 0 for a rank outside the communicator and for a nil window, and stays the
// same after Close.
//
// Local.
func (w *SharedWindow[T]) Size(rank int) int {
	if s := w.base(); s != nil {
		return s.win.Size(rank) / view.Size[T]()
	}
	return 0
}

// part returns the part of a rank, the caller's own for a rank below 0.
func part[T any](s *shared, op string, rank int) ([]T, error) {
	if s == nil {
		return nil, s.failed(op, rank, noWindow)
	}
	peer := rank
	if rank < 0 {
		rank, peer = s.c.core.rank, Undefined
	}
	b, err := s.win.Part(rank)
	if err != nil {
		return nil, s.failed(op, peer, err)
	}
	return elements[T](b), nil
}

// elements returns memory as elements; of no elements it is not nil.
func elements[T any](b []byte) []T {
	if len(b) == 0 {
		return []T{}
	}
	e := view.Of[T](b)
	return e[:len(e):len(e)]
}

// Fence makes all that any rank has written to the window before visible to all
// ranks after it (MPI_Win_fence).
//
// Collective: all ranks of the communicator call it.
//
// Errors: [ErrWin] if the rank has a lock of the window, [ErrMismatch] then for the
// others, and on every rank if one calls something else, be it the Fence of
// another window; [ErrClosed].
func (w *SharedWindow[T]) Fence() error { return w.base().fence() }

// Sync orders the calling rank's accesses: what it has written before is visible
// before what it writes later, and what others made so is seen (MPI_Win_sync).
// For a rank to see what another wrote, both call it, and between the two calls
// something tells the one that the other has come so far, such as a message.
//
// Local.
//
// Errors: [ErrClosed].
func (w *SharedWindow[T]) Sync() error {
	s := w.base()
	if s == nil {
		return s.failed("sync", Undefined, noWindow)
	}
	if err := s.win.Sync(); err != nil {
		return s.failed("sync", Undefined, err)
	}
	return nil
}

// Close gives the rank's view of the window back, and locks that it still has.
// Closing twice, or a nil window, does nothing; closing the communicator closes
// its windows.
//
// Collective: all ranks call it. On mpi it waits for them, elsewhere not.
//
// Errors: [ErrWin] if the rank had a lock; the window is closed all the same.
func (w *SharedWindow[T]) Close() error { return w.base().close() }

// fenceCall names a Fence among the collectives.
var fenceCall = maker("Fence")

func (s *shared) fence() error {
	if s == nil {
		return s.failed("fence", Undefined, noWindow)
	}
	if err := s.win.Sync(); err != nil {
		return s.failed("fence", Undefined, err)
	}
	c := s.c
	if err := c.take(); err != nil {
		return s.failed("fence", Undefined, err)
	}
	k := c.core
	call := &k.call
	call.Coll, call.Type, call.Root, call.Err = backend.Barrier, fenceCall, s.number, s.win.Unlocked()
	err := k.collective(c.bound, call)
	*call = backend.Call{Root: -1}
	k.busy.Store(false)
	if err != nil {
		return s.failed("fence", Undefined, err)
	}
	_ = s.win.Sync() // closed meanwhile: the caller's affair
	return nil
}

func (s *shared) close() error {
	if s == nil {
		return nil
	}
	k := s.c.core
	if s.win.Together() {
		k.beginChange() // first, so that Close waits for it or it sees Close
		defer k.endChange()
		switch err := s.c.take(); {
		case err == nil:
			defer k.busy.Store(false)
		case backend.Code(err) == backend.Code(ErrClosed):
			return nil // and the window with the communicator
		default:
			return s.failed("close", Undefined, err)
		}
	}
	k.mu.Lock()
	k.windows = slices.DeleteFunc(k.windows, func(o *shared) bool { return o.win == s.win })
	k.mu.Unlock()
	if err := s.win.Close(s.meet); err != nil {
		return s.failed("close", Undefined, err)
	}
	return nil
}

// closeCall names a Close among the collectives.
var closeCall = maker("Close")

// meet waits until all ranks close the window. The caller has taken the
// communicator.
func (s *shared) meet() error {
	k := s.c.core
	call := &k.call
	call.Coll, call.Type, call.Root = backend.Barrier, closeCall, s.number
	err := k.collective(s.c.bound, call)
	*call = backend.Call{Root: -1}
	return err
}

// beginChange notes that a window is being made, or closed together, until endChange is called.
// Other ranks rely on that: where this one ended the communicator meanwhile, they would
// wait for it in the library.
func (k *core) beginChange() {
	k.changing.Add(1)
	k.job.changing.Add(1)
}

func (k *core) endChange() {
	k.changing.Add(-1)
	k.job.changing.Add(-1)
}

// quiesceFor is how long Close waits for windows that other goroutines are making or
// closing. Those may wait for ranks that never come, or for this very Close.
const quiesceFor = 5 * time.Second

// quiesce waits until no window is being made or closed any more, until end at most; on
// the world, no window of any communicator.
func (k *core) quiesce(end time.Time) {
	n := &k.changing
	if k == k.job.world {
		n = &k.job.changing
	}
	for ; n.Load() != 0 && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
	}
}

// closeWindows closes what is open, in the order in which it was made, which is
// the same on all ranks. The communicator is closed, for its users. Until end it waits for
// those that other goroutines are making or closing.
func (k *core) closeWindows(end time.Time) {
	k.quiesce(end) // before busy is looked at, which a window that is being closed has
	k.mu.Lock()
	open := k.windows
	k.windows = nil
	k.mu.Unlock()
	if len(open) == 0 {
		return
	}
	slices.SortFunc(open, func(a, b *shared) int { return cmp.Compare(a.number, b.number) })
	free := k.busy.CompareAndSwap(false, true)
	for _, s := range open {
		meet := s.meet
		if !free { // a goroutine is in a collective still, so that there can be no other
			meet = func() error { return noMeeting }
		}
		_ = s.win.Close(meet) // that a lock was held matters to nobody now
	}
	if free {
		k.busy.Store(false)
	}
}

var noMeeting = fault(ErrBusy, "the communicator was closed during a collective")

var noWindow = fault(ErrWin, "the window is nil")

// failed wraps the error of an operation.
func (s *shared) failed(op string, peer int, err error) error {
	if s == nil {
		return &OpError{Op: op, Rank: Undefined, Peer: peer, Tag: Undefined, Err: err}
	}
	return s.c.failed(op, peer, Undefined, err)
}
