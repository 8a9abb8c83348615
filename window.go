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

// SharedWindow is memory that the ranks of a node share. Every rank has a part of it, and reads and
// writes the parts of all ranks in place (MPI-4.1 section 12.2.3). The memory lies outside the Go heap,
// and each part lies near its rank.
//
// A rank sees what another rank has written in one of three cases: both have called Fence since; or the
// writer has called Unlock, and then the reader Lock; or the writer has called Sync and sent a message,
// and then the reader has received it and called Sync. Otherwise, reading while another rank writes is
// a data race.
//
// Many goroutines can use a window at once. Fence and Close are collectives of the communicator that
// the window was made from. The deadlines of that communicator apply to the window's operations.
//
// Slices of a window are valid until Close. Using one later is a fault that ends the program. It never
// reaches other memory, unless very many windows have been closed since.
type SharedWindow[T any] struct{ s *shared }

// shared is a window without its element type. It may be nil.
type shared struct {
	c      *Comm
	win    *window.Window
	number int // among those of the communicator
}

// base returns the window without its type, or nil for a nil window.
func (w *SharedWindow[T]) base() *shared {
	if w == nil {
		return nil
	}
	return w.s
}

// AllocateShared makes a window in which the calling rank's part has n elements, all zero. n may
// differ between ranks and may be 0. Every rank first touches its own part, so that the part lies in
// the NUMA domain where the caller runs.
//
// Collective: all ranks of c call it, with the same T. All must be on one node (see
// [Comm.SplitShared]). Where ranks share no memory, each rank counts as a node.
//
// Errors: [ErrCount] for a negative n; [ErrType]; [ErrComm] if c spans several nodes; [ErrAlloc] on
// every rank if the memory cannot be allocated, with the size requested and the limit; [ErrMismatch] on
// every rank if the types differ.
//
// Deadline: [ErrTimeout]; c may be broken then.
func AllocateShared[T any](c *Comm, n int) (*SharedWindow[T], error) {
	s, err := allocate[T](c, "AllocateShared", n, false)
	if err != nil {
		return nil, c.failed("allocateshared", Undefined, Undefined, err)
	}
	return &SharedWindow[T]{s}, nil
}

// WithContext returns a handle of the same window whose operations end when ctx does, as
// [Comm.WithContext] does for a communicator. It gives a Lock a deadline, for example. The handle need
// not be closed. Closing it closes the window.
//
// Local.
func (w *SharedWindow[T]) WithContext(ctx context.Context) *SharedWindow[T] {
	s := w.base()
	if s == nil {
		return w
	}
	return &SharedWindow[T]{&shared{s.c.WithContext(ctx), s.win, s.number}}
}

// Local returns the calling rank's part, for reading and writing.
//
// Local.
//
// Errors: [ErrClosed].
func (w *SharedWindow[T]) Local() ([]T, error) { return part[T](w.base(), "local", -1) }

// Remote returns the part of any rank, for reading and writing in place.
//
// Local.
//
// Errors: [ErrClosed]; [ErrRank] for a rank outside the communicator.
func (w *SharedWindow[T]) Remote(rank int) ([]T, error) {
	if rank < 0 {
		return nil, w.base().failed("remote", rank, fault(ErrRank, "the rank is negative"))
	}
	return part[T](w.base(), "remote", rank)
}

// Size returns the number of elements in the part of a rank, which is the n that the rank passed to
// [AllocateShared]. It is 0 for a rank outside the communicator and for a nil window. Close does not
// change it.
//
// Local.
func (w *SharedWindow[T]) Size(rank int) int {
	if s := w.base(); s != nil {
		return s.win.Size(rank) / view.Size[T]()
	}
	return 0
}

// part returns the part of a rank, or the caller's for a negative rank.
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

// elements returns memory as elements. Its result is not nil, even if it is empty.
func elements[T any](b []byte) []T {
	if len(b) == 0 {
		return []T{}
	}
	e := view.Of[T](b)
	return e[:len(e):len(e)]
}

// Fence makes everything that any rank wrote to the window before it visible to all ranks after it
// (MPI_Win_fence).
//
// Collective: all ranks of the communicator call it.
//
// Errors: [ErrWin] if the rank holds a lock of the window, and [ErrMismatch] on the others then;
// [ErrMismatch] on every rank if one calls something else, including the Fence of another window;
// [ErrClosed].
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func (w *SharedWindow[T]) Fence() error { return w.base().fence() }

// Sync is a memory barrier (MPI_Win_sync). Earlier writes of the calling rank become visible before its
// later writes, and it sees the writes that others have made visible. To pass data from one rank to
// another, the writer calls Sync and sends a message; the reader receives the message and calls Sync.
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

// Close releases the window on the calling rank, and the locks that the rank still holds. Its slices
// must not be used afterwards. Closing again, or closing a nil window, does nothing. Closing the
// communicator closes its windows.
//
// Collective: all ranks call it. On mpi it waits for the other ranks; on other backends it does not
// wait.
//
// Errors: [ErrWin] if the rank held a lock; the window is closed nevertheless.
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
	_ = s.win.Sync() // fails only if the caller has closed the window meanwhile
	return nil
}

func (s *shared) close() error {
	if s == nil {
		return nil
	}
	k := s.c.core
	if s.win.Together() {
		k.beginChange() // before take, so that either Close waits for this or take fails
		defer k.endChange()
		switch err := s.c.take(); {
		case err == nil:
			defer k.busy.Store(false)
		case backend.Code(err) == backend.Code(ErrClosed):
			return nil // the communicator's Close has closed the window
		default:
			return s.failed("close", Undefined, err)
		}
	}
	k.mu.Lock()
	k.windows = slices.DeleteFunc(k.windows, func(o *shared) bool { return o.win == s.win })
	k.mu.Unlock()
	if err := s.win.Close(s.arrive); err != nil {
		return s.failed("close", Undefined, err)
	}
	return nil
}

// closeCall names a Close among the collectives.
var closeCall = maker("Close")

// arrive waits until all ranks close the window. The caller has taken the communicator.
func (s *shared) arrive() error {
	k := s.c.core
	call := &k.call
	call.Coll, call.Type, call.Root = backend.Barrier, closeCall, s.number
	err := k.collective(s.c.bound, call)
	*call = backend.Call{Root: -1}
	return err
}

// beginChange and endChange bracket the making and the collective closing of a window. If this rank
// closed the communicator in between, the others would wait for it in the library.
func (k *core) beginChange() {
	k.changing.Add(1)
	k.job.changing.Add(1)
}

func (k *core) endChange() {
	k.changing.Add(-1)
	k.job.changing.Add(-1)
}

// quiesceFor is how long Close waits for windows that other goroutines are making or closing. Those
// may wait for ranks that never arrive, or for this Close. Tests shorten it.
var quiesceFor = 5 * time.Second

// quiesce waits until no window of the communicator is being made or closed, and until end at most. On
// the world it waits for the windows of all communicators.
func (k *core) quiesce(end time.Time) {
	n := &k.changing
	if k == k.job.world {
		n = &k.job.changing
	}
	for ; n.Load() != 0 && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
	}
}

// closeWindows closes the open windows in the order in which they were made, which is the same on all
// ranks. Until end it waits for windows that other goroutines are making or closing. The caller has set
// k.closed.
func (k *core) closeWindows(end time.Time) {
	k.quiesce(end) // before busy is read, because making or closing a window sets it
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
		arrive := s.arrive
		if !free { // a goroutine is still in a collective, which excludes another one
			arrive = func() error { return errInCollective }
		}
		_ = s.win.Close(arrive) // a lock that is still held does not matter now
	}
	if free {
		k.busy.Store(false)
	}
}

var errInCollective = fault(ErrBusy, "the communicator was closed during a collective")

var noWindow = fault(ErrWin, "the window is nil")

// failed wraps the error of an operation.
func (s *shared) failed(op string, peer int, err error) error {
	if s == nil {
		return &OpError{Op: op, Rank: Undefined, Peer: peer, Tag: Undefined, Err: err}
	}
	return s.c.failed(op, peer, Undefined, err)
}
