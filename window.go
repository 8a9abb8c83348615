package cohort

import (
	"context"

	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Window is memory that every rank of a communicator reads and updates by one-sided operations, on any
// node. The rank that owns the memory need not call anything (MPI-4.1 chapter 12). docs/windows.md says how
// operations progress and what that costs. In a window made by [AllocateShared], ranks can also read and
// write each other's parts in place, as slices ([Window.Remote]).
//
// There are no epochs. A window may be accessed from its making to Close, as under MPI_Win_lock_all. Put
// and Accumulate return when their buffer may be used again, and are complete at the target after Flush or
// Fence. An operation that returns a value is complete when it returns.
//
// Accumulate, GetAccumulate, FetchAndOp and CompareAndSwap are atomic for each element with respect to each
// other. So are Put and Get of a single element of 1, 2, 4 or 8 bytes. Longer ones are not: a Get during a Put
// may return a part of its elements. The operations of one goroutine on the part of one rank take place in the
// order of its calls, except those of Rput and Rget, which may take place later, until they are complete.
//
// In all operations rank is the target, disp the index of the first element in its part. With rank
// [ProcNull] they do nothing, and return zero.
//
// A rank that reads a part in place, in the slices of Local and Remote, sees what another rank has written
// there in one of three cases: both have called Fence since; or the writer has called Unlock, and then the
// reader Lock; or the writer has called Flush (Sync, if it has written in place) and sent a message, and then
// the reader has received it and called Sync. Otherwise, reading while another rank writes is a data race.
//
// Errors of all operations: [ErrRank]; [ErrWin] if the elements are not inside the target's part, which is
// checked before anything is sent; [ErrClosed] after Close; [ErrPeerLost] once a rank is lost.
//
// Many goroutines can use a window at once. Fence and Close are collectives of the communicator that the window
// was made from. The deadlines of that communicator apply to the window's operations.
//
// Slices of a window are valid until Close. Using one later is a fault that ends the program. It never
// reaches other memory, unless very many windows have been closed since.
type Window[T any] struct{ w *comm.Window }

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

func (w *Window[T]) base() *comm.Window { return (*untyped)(w).base() }

// NewWindow makes a window in which the calling rank's part has n elements, all zero. n may differ between
// ranks and may be 0. Every rank first touches its own part, so that the part lies in the NUMA domain where
// the caller runs.
//
// Collective: all ranks of c call it, with the same T.
//
// Errors: [ErrCount] for a negative n; [ErrType]; [ErrAlloc] on every rank if a node lacks the memory, with the
// size requested and the limit; [ErrMismatch] on every rank if the types differ; [ErrNotSupported] on mpi if the
// ranks are on several nodes and the library's thread level is below serialized.
//
// Deadline: [ErrTimeout]; c may be broken then.
func NewWindow[T any](c *Comm, n int) (*Window[T], error) {
	return newWindow[T](c, "NewWindow", n, comm.Anywhere)
}

// AllocateShared makes a window as [NewWindow] does, on the ranks of one node. They share the memory, and
// [Window.Remote] returns the parts of the others.
//
// Collective: all ranks of c call it, with the same T. All must be on one node (see
// [Comm.SplitShared]). Where ranks share no memory, each rank counts as a node.
//
// Errors: those of [NewWindow]; [ErrComm] if c spans several nodes.
//
// Deadline: as for NewWindow.
func AllocateShared[T any](c *Comm, n int) (*Window[T], error) {
	return newWindow[T](c, "AllocateShared", n, comm.OneNode)
}

func newWindow[T any](c *Comm, call string, n int, reach comm.Reach) (*Window[T], error) {
	typ, err := typeFor[T]()
	w, err := c.base().NewWindow(comm.NewAllocation(call, typ, n, reach, err))
	if err != nil {
		return nil, err
	}
	return &Window[T]{w}, nil
}

// WithContext returns a handle of the same window whose operations end when ctx does, as
// [Comm.WithContext] does for a communicator. It gives a Lock a deadline, for example. The handle need
// not be closed. Closing it closes the window.
//
// Not collective.
func (w *Window[T]) WithContext(ctx context.Context) *Window[T] {
	if w == nil {
		return nil
	}
	return &Window[T]{w.base().WithContext(ctx)}
}

// Local returns the calling rank's part, for reading and writing in place.
//
// Not collective.
//
// Errors: [ErrClosed].
func (w *Window[T]) Local() ([]T, error) { return elements[T](w.base().Own("local")) }

// Remote returns the part of any rank, for reading and writing in place.
//
// Not collective.
//
// Errors: [ErrClosed]; [ErrRank] for a rank outside the communicator; [ErrWin] if the window was not made by
// [AllocateShared].
func (w *Window[T]) Remote(rank int) ([]T, error) { return elements[T](w.base().Remote(rank)) }

// Size returns the number of elements in the part of a rank, which is the n that the rank passed to
// [NewWindow] or [AllocateShared]. It is 0 for a rank outside the communicator and for a nil window. Close
// does not change it.
//
// Not collective.
func (w *Window[T]) Size(rank int) int { return w.base().Size(rank) }

// MPIHandle returns the MPI_Win that provides the window's memory, for a C library that wants one. What
// [Comm.MPIHandle] says about handles holds for it too. To MPI, the memory of all ranks is the part of rank 0.
//
// Not collective.
//
// Errors: [ErrNotSupported] on other backends than mpi, for the window of a single rank, and if the ranks are on
// several nodes; [ErrClosed].
func (w *Window[T]) MPIHandle() (uintptr, error) { return w.base().MPIHandle(mpiWindow) }

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

// Fence waits until all ranks have called it. Then the operations of all ranks before it are complete, and all
// ranks see what was written (MPI_Win_fence).
//
// Collective: all ranks of the communicator that the window was made from call it.
//
// Errors: [ErrMismatch] on every rank if one calls something else, including the Fence of another window.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func (w *Window[T]) Fence() error { return w.base().Fence() }

// Flush waits until the calling rank's operations on the part of a rank are complete there (MPI_Win_flush).
//
// Not collective.
//
// Errors: those of all operations of a [Window].
//
// Deadline: [ErrTimeout].
func (w *Window[T]) Flush(rank int) error { return w.base().Flush(rank) }

// FlushAll is Flush for the parts of all ranks (MPI_Win_flush_all).
//
// Not collective; errors, deadline: as for [Window.Flush].
func (w *Window[T]) FlushAll() error { return w.base().FlushAll() }

// Sync is a memory barrier (MPI_Win_sync). What the calling rank has written in place becomes visible before its
// later writes, and it sees the writes that others have made visible.
//
// Not collective.
//
// Errors: [ErrClosed].
func (w *Window[T]) Sync() error { return w.base().Sync() }

// Close closes the window. What [Window.Local] and [Window.Remote] returned must not be used afterwards. Closing
// again, or closing a nil window, does nothing. Closing the communicator closes its windows.
//
// Collective: all ranks call it. On mpi, and if the ranks are on several nodes, they wait for each other; otherwise
// Close does not wait for other ranks.
//
// Errors: [ErrWin] if the rank held a lock, which is released; the window is closed nevertheless.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived; the window is closed nevertheless.
func (w *Window[T]) Close() error { return w.base().Close() }
