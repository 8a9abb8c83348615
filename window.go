package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
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
type SharedWindow[T any] struct{ w *comm.Window }

// untyped is a window without its type. A window of any type converts to it at no cost. If Lock and
// LockAll called the generic base, they would cost too much to be inlined, and their guards would be on
// the heap.
type untyped struct{ w *comm.Window }

// base returns what stands behind the window. It is nil for nil.
func (w *untyped) base() *comm.Window {
	if w == nil {
		return nil
	}
	return w.w
}

func (w *SharedWindow[T]) base() *comm.Window { return (*untyped)(w).base() }

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
	typ, err := typeFor[T]()
	w, err := c.base().Allocate(comm.NewAllocation("AllocateShared", typ, n, false, err))
	if err != nil {
		return nil, c.failed("allocateshared", err)
	}
	return &SharedWindow[T]{w}, nil
}

// WithContext returns a handle of the same window whose operations end when ctx does, as
// [Comm.WithContext] does for a communicator. It gives a Lock a deadline, for example. The handle need
// not be closed. Closing it closes the window.
//
// Local.
func (w *SharedWindow[T]) WithContext(ctx context.Context) *SharedWindow[T] {
	if w == nil {
		return nil
	}
	return &SharedWindow[T]{w.base().WithContext(ctx)}
}

// Local returns the calling rank's part, for reading and writing.
//
// Local.
//
// Errors: [ErrClosed].
func (w *SharedWindow[T]) Local() ([]T, error) { return elements[T](w.base().Part("local", Undefined)) }

// Remote returns the part of any rank, for reading and writing in place.
//
// Local.
//
// Errors: [ErrClosed]; [ErrRank] for a rank outside the communicator.
func (w *SharedWindow[T]) Remote(rank int) ([]T, error) {
	if rank < 0 {
		return nil, w.base().Failed("remote", rank, fault(ErrRank, "the rank is negative"))
	}
	return elements[T](w.base().Part("remote", rank))
}

// Size returns the number of elements in the part of a rank, which is the n that the rank passed to
// [AllocateShared]. It is 0 for a rank outside the communicator and for a nil window. Close does not
// change it.
//
// Local.
func (w *SharedWindow[T]) Size(rank int) int { return w.base().Size(rank) / view.Size[T]() }

// elements returns memory as elements. Without an error its result is not nil, even if it is empty.
func elements[T any](b []byte, err error) ([]T, error) {
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0:
		return []T{}, nil
	}
	e := view.Of[T](b)
	return e[:len(e):len(e)], nil
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
func (w *SharedWindow[T]) Fence() error { return w.base().Fence() }

// Sync is a memory barrier (MPI_Win_sync). Earlier writes of the calling rank become visible before its
// later writes, and it sees the writes that others have made visible. To pass data from one rank to
// another, the writer calls Sync and sends a message; the reader receives the message and calls Sync.
//
// Local.
//
// Errors: [ErrClosed].
func (w *SharedWindow[T]) Sync() error { return w.base().Sync() }

// Close releases the window on the calling rank, and the locks that the rank still holds. Its slices
// must not be used afterwards. Closing again, or closing a nil window, does nothing. Closing the
// communicator closes its windows.
//
// Collective: all ranks call it. On mpi it waits for the other ranks; on other backends it does not
// wait.
//
// Errors: [ErrWin] if the rank held a lock; the window is closed nevertheless.
func (w *SharedWindow[T]) Close() error { return w.base().Close() }
