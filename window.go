package cohort

import (
	"context"
	"fmt"
	"reflect"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
	"github.com/cohort-hpc/cohort/internal/window"
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
// Accumulate, GetAccumulate, FetchAndOp and CompareAndSwap are atomic for each element with respect
// to each other. So are Put and Get of a single element of 1, 2, 4 or 8 bytes. Longer ones are not:
// a Get during a Put may return a part of its elements. The operations of one goroutine on the part
// of one rank take place in the order of its calls. Only those of Rput and Rget may take place
// later, until they are complete.
//
// In all operations rank is the target, disp the index of the first element in its part. With rank
// [ProcNull] they do nothing, and return zero.
//
// When does a rank that reads a part in place, in the slices of Local and Remote, see what another
// rank has written there? In one of three cases: both have called Fence since; the writer has
// called Unlock, and then the reader Lock; or the writer has called Flush (Sync, if it has written
// in place) and sent a message, and then the reader has received it and called Sync. Otherwise,
// reading while another rank writes is a data race.
//
// Errors of all operations: [ErrRank]; [ErrWin] if the elements are not inside the target's part, which is
// checked before anything is sent; [ErrClosed] after Close; [ErrPeerLost] once a rank is lost.
//
// Many goroutines can use a window at once. Fence and Close are collectives of the communicator that the window
// was made from. The deadlines of that communicator apply to the window's operations.
//
// Slices of a window are valid until Close. On Linux, using one later is a fault that ends the
// program (docs/windows.md has the limits).
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
// Errors, deadline: as for [NewWindow]; [ErrComm] if c spans several nodes.
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
func (w *Window[T]) WithContext(ctx context.Context) *Window[T] {
	if w == nil {
		return nil
	}
	return &Window[T]{w.base().WithContext(ctx)}
}

// Local returns the calling rank's part, for reading and writing in place.
//
// Not collective; errors: [ErrClosed].
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
// Errors: [ErrMismatch] on every rank if one calls something else, including the Fence of another window; [ErrBroken] if
// the window ends on all ranks, as for [Window.Get]. If that happens while Fence waits, the communicator is broken.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func (w *Window[T]) Fence() error { return w.base().Fence() }

// Flush waits until the calling rank's operations on the part of a rank are complete there (MPI_Win_flush).
//
// Not collective; errors: those of all operations of a [Window]. Deadline: [ErrTimeout].
func (w *Window[T]) Flush(rank int) error { return w.base().Flush(rank) }

// FlushAll is Flush for the parts of all ranks (MPI_Win_flush_all).
//
// Not collective; errors, deadline: as for [Window.Flush].
func (w *Window[T]) FlushAll() error { return w.base().FlushAll() }

// Sync is a memory barrier (MPI_Win_sync). What the calling rank has written in place becomes visible before its
// later writes, and it sees the writes that others have made visible.
//
// Not collective; errors: [ErrClosed].
func (w *Window[T]) Sync() error { return w.base().Sync() }

// Close closes the window. What [Window.Local] and [Window.Remote] returned must not be used afterwards. Closing
// again, or closing a nil window, does nothing. Closing the communicator closes its windows.
//
// Collective: all ranks call it. On mpi, and if the ranks are on several nodes, they wait for each other; otherwise
// Close does not wait for other ranks.
//
// Errors: [ErrWin] if the rank held a lock, which is released; [ErrBroken] as for [Window.Fence]. The window is closed
// nevertheless.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived; the window is closed nevertheless.
// If the context of the handle is over when Close is called, the limit is 5 s. docs/mpi.md says
// what happens on mpi if the limit ends while the ranks free the memory.
func (w *Window[T]) Close() error { return w.base().Close() }

// Put writes buf to the target (MPI_Put).
//
// Not collective; errors: those of all operations of a [Window].
//
// Deadline: [ErrTimeout]; a part of buf may have been written.
func (w *Window[T]) Put(buf []T, rank, disp int) error {
	return w.base().Do("put", comm.Access{Kind: flight.Put, Rank: rank, Disp: disp, In: view.Bytes(buf)})
}

// Get reads elements of the target into buf (MPI_Get).
//
// Not collective; errors: those of all operations of a [Window].
//
// Deadline: [ErrTimeout]; the elements of buf are undefined. If they are on their way from another node then, the window
// ends on all ranks, with [ErrBroken], and buf must not be used again.
func (w *Window[T]) Get(buf []T, rank, disp int) error {
	return w.base().Do("get", comm.Access{Kind: flight.Get, Rank: rank, Disp: disp, Out: view.Bytes(buf)})
}

// Accumulate sets each element of the target to its combination with that of buf (MPI_Accumulate).
//
// Not collective; errors: [ErrOp] for an operation made by [NewOp], or one that does not apply to T.
//
// Deadline: [ErrTimeout]; some elements may have been updated.
func (w *Window[T]) Accumulate(buf []T, rank, disp int, op Op) error {
	o, err := accumulating[T](op)
	return w.base().Do("accumulate", comm.Access{Kind: flight.Accumulate, Op: o, Rank: rank, Disp: disp, In: view.Bytes(buf), Err: err})
}

// GetAccumulate updates elements as [Window.Accumulate] does, and stores in result what they were before
// (MPI_Get_accumulate).
//
// Not collective.
//
// Buffers: result is as long as buf. Passing the same slice works; other overlaps are [ErrBuffer].
//
// Errors, deadline: as for Accumulate; [ErrBuffer].
func (w *Window[T]) GetAccumulate(buf, result []T, rank, disp int, op Op) error {
	o, err := accumulating[T](op)
	in, out := view.Bytes(buf), view.Bytes(result)
	switch {
	case err != nil:
	case len(buf) != len(result):
		err = fault(ErrBuffer, fmt.Sprintf("buf has %d elements, result %d; want equally many", len(buf), len(result)))
	case view.Overlap(in, out) && !view.Same(in, out):
		err = fault(ErrBuffer, "buf and result overlap; pass the same slice twice, or separate ones")
	}
	return w.base().Do("getaccumulate", comm.Access{Kind: flight.GetAccumulate, Op: o, Rank: rank, Disp: disp, In: in, Out: out, Err: err})
}

// FetchAndOp sets an element of the target to its combination with x, and returns what it was
// (MPI_Fetch_and_op).
//
// Not collective; errors: as for Accumulate.
//
// Deadline: [ErrTimeout]; the element may have been updated.
func (w *Window[T]) FetchAndOp(x T, rank, disp int, op Op) (T, error) {
	o, err := accumulating[T](op)
	return one(x, func(send, recv []T) error {
		return w.base().Do("fetchandop", comm.Access{Kind: flight.FetchAndOp, Op: o, Rank: rank, Disp: disp, In: view.Bytes(send), Out: view.Bytes(recv), Err: err})
	})
}

// CompareAndSwap sets an element of the target to new if it is old, and returns what it was
// (MPI_Compare_and_swap). Elements are numbers and bools, which it compares bit by bit.
//
// Not collective; errors: [ErrType] for other elements.
//
// Deadline: [ErrTimeout]; the element may have been updated.
func (w *Window[T]) CompareAndSwap(old, new T, rank, disp int) (T, error) {
	var was T
	p, words := scalar[T](3)
	if words == nil {
		words = make([]T, 3)
	}
	words[0], words[1], words[2] = old, new, was
	a := comm.Access{Kind: flight.CompareAndSwap, Rank: rank, Disp: disp, In: view.Bytes(words[:2]), Out: view.Bytes(words[2:])}
	if typ, err := typeFor[T](); err != nil || typ.Kind == backend.Opaque || typ.Kind == backend.Loc {
		a.Err = fault(ErrType, fmt.Sprintf("elements of %v; CompareAndSwap takes numbers and bools", reflect.TypeFor[T]()))
	}
	err := w.base().Do("compareandswap", a)
	if err == nil {
		was = words[2]
		scalars.Put(p)
	}
	return was, err
}

// Rput is the nonblocking form of [Window.Put] (MPI_Rput). buf must not be written until the request is complete.
// Flush or Fence completes it at the target.
func (w *Window[T]) Rput(buf []T, rank, disp int) (*Request, error) {
	return request(w.base().Request("rput", comm.Access{Kind: flight.Put, Rank: rank, Disp: disp, In: view.Bytes(buf)}))
}

// Rget is the nonblocking form of [Window.Get] (MPI_Rget). buf must not be used until the request is complete.
func (w *Window[T]) Rget(buf []T, rank, disp int) (*Request, error) {
	return request(w.base().Request("rget", comm.Access{Kind: flight.Get, Rank: rank, Disp: disp, Out: view.Bytes(buf)}))
}

// accumulating returns op for one-sided operations on T.
func accumulating[T any](op Op) (*backend.Op, error) {
	if op.user != nil {
		return nil, fault(ErrOp, "one-sided operations take the predefined reductions only, as in MPI")
	}
	return opFor[T](op)
}

// LockKind is a kind of lock on a part of a window.
type LockKind uint8

// The kinds of locks (MPI_LOCK_SHARED, MPI_LOCK_EXCLUSIVE).
const (
	LockShared    = LockKind(window.Shared)    // several ranks may hold it, for reading
	LockExclusive = LockKind(window.Exclusive) // one rank may hold it, for writing
)

// String returns the name of the kind: shared or exclusive.
func (k LockKind) String() string { return window.Kind(k).String() }

// LockGuard is a lock that the calling rank holds on the part of a rank.
type LockGuard comm.Guard

// LockAllGuard is the locks that the calling rank holds on the parts of all ranks.
type LockAllGuard comm.Guard

// Lock waits until the calling rank holds the lock of a rank's part (MPI_Win_lock). A lock excludes other
// locks of the part, and nothing else: operations need none, and those of ranks without one go on.
//
// The goroutines of a rank together hold each lock at most once. A rank that waits for an exclusive
// lock goes before ranks that request the lock later to share it.
//
// Not collective, but Lock waits while other ranks hold a lock that excludes this one.
//
// Errors: [ErrRank]; [ErrWin] for an unknown kind, and if the rank already holds the lock or another of
// its goroutines waits for it; [ErrClosed]; [ErrPeerLost].
//
// Deadline: [ErrTimeout] names the rank that holds the lock. For the part of a rank on another node, it names the one
// that held the lock when this rank asked for it.
func (w *Window[T]) Lock(kind LockKind, rank int) (*LockGuard, error) {
	g, err := (*untyped)(w).lock(kind, rank) // a value, so that it can be on the caller's stack
	if err != nil {
		return nil, err
	}
	return (*LockGuard)(&g), nil
}

// LockAll waits until the calling rank holds a shared lock of every part (MPI_Win_lock_all).
//
// Not collective, but LockAll waits while another rank holds an exclusive lock.
//
// Errors, deadline: as for Lock.
func (w *Window[T]) LockAll() (*LockAllGuard, error) {
	g, err := (*untyped)(w).lockAll()
	if err != nil {
		return nil, err
	}
	return (*LockAllGuard)(&g), nil
}

// Neither lock nor lockAll is inlined, so that Lock and LockAll are.
//
//go:noinline
func (w *untyped) lock(kind LockKind, rank int) (comm.Guard, error) {
	return w.base().Lock(window.Kind(kind), rank)
}

//go:noinline
func (w *untyped) lockAll() (comm.Guard, error) { return w.base().LockAll() }

// Flush is [Window.Flush] under the lock, for the part that it locks (MPI_Win_flush).
//
// Not collective; errors: [ErrWin] after Unlock; [ErrClosed].
func (g *LockGuard) Flush() error {
	b := (*comm.Guard)(g)
	return b.Flush(b.Rank())
}

// Unlock releases the lock (MPI_Win_unlock). The next rank that gets it sees what this rank has
// written to the part before.
//
// Not collective; errors: [ErrWin] if the lock has been released; [ErrClosed].
func (g *LockGuard) Unlock() error { return (*comm.Guard)(g).Unlock() }

// Flush is [Window.Flush] under the locks (MPI_Win_flush).
//
// Not collective; errors: [ErrRank]; [ErrWin] after Unlock; [ErrClosed].
func (g *LockAllGuard) Flush(rank int) error { return (*comm.Guard)(g).Flush(rank) }

// FlushAll is [Window.FlushAll] under the locks (MPI_Win_flush_all).
//
// Not collective; errors: [ErrWin] after Unlock; [ErrClosed].
func (g *LockAllGuard) FlushAll() error { return (*comm.Guard)(g).FlushAll() }

// Unlock releases all the locks (MPI_Win_unlock_all). A rank that then gets one of them sees what
// this rank has written to the part before.
//
// Not collective; errors: [ErrWin] if the locks have been released; [ErrClosed].
func (g *LockAllGuard) Unlock() error { return (*comm.Guard)(g).Unlock() }
