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
// node. The rank that owns the memory need not call anything (MPI-4.1 chapter 12). docs/onesided.md says how
// operations progress and what that costs.
//
// There are no epochs. A window may be accessed from NewWindow to Close, as under MPI_Win_lock_all. Put
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
// Errors of all operations: [ErrRank]; [ErrWin] if the elements are not inside the target's part, which is
// checked before anything is sent; [ErrClosed] after Close; [ErrPeerLost] once a rank is lost.
//
// Many goroutines can use a window at once.
type Window[T any] struct{ w *comm.Onesided }

func (w *Window[T]) base() *comm.Onesided {
	if w == nil {
		return nil
	}
	return w.w
}

// NewWindow makes a window in which the calling rank's part has n elements, all zero. n may differ between
// ranks and may be 0.
//
// Collective: all ranks of c call it, with the same T.
//
// Errors: [ErrCount] for a negative n; [ErrType]; [ErrAlloc] on every rank if a node lacks the memory;
// [ErrMismatch] on every rank if the types differ; [ErrNotSupported] on mpi if the ranks are on several nodes
// and the library's thread level is below serialized.
//
// Deadline: [ErrTimeout]; c may be broken then.
func NewWindow[T any](c *Comm, n int) (*Window[T], error) {
	typ, err := typeFor[T]()
	w, err := c.base().NewOnesided(typ, n, err)
	if err != nil {
		return nil, err
	}
	return &Window[T]{w}, nil
}

// WithContext returns a handle of the same window whose operations end when ctx does. The handle need not
// be closed. Closing it closes the window.
//
// Local.
func (w *Window[T]) WithContext(ctx context.Context) *Window[T] {
	if w == nil {
		return nil
	}
	return &Window[T]{w.base().WithContext(ctx)}
}

// Local returns the calling rank's part, for reading and writing in place. It shows what another rank has
// written after Fence, or after that rank's Flush and a message from it. It is valid until Close.
//
// Local.
func (w *Window[T]) Local() ([]T, error) { return elements[T](w.base().Own()) }

// Put writes buf to the target (MPI_Put).
//
// Local. It returns when buf can be used again. Flush or Fence completes it.
//
// Deadline: [ErrTimeout]; a part of buf may have been written.
func (w *Window[T]) Put(buf []T, rank, disp int) error {
	return w.base().Do("put", comm.Access{Kind: flight.Put, Rank: rank, Disp: disp, In: view.Bytes(buf)})
}

// Get reads elements of the target into buf (MPI_Get).
//
// Local. It returns when buf has them.
//
// Deadline: [ErrTimeout]; the elements of buf are undefined.
func (w *Window[T]) Get(buf []T, rank, disp int) error {
	return w.base().Do("get", comm.Access{Kind: flight.Get, Rank: rank, Disp: disp, Out: view.Bytes(buf)})
}

// Accumulate sets each element of the target to its combination with that of buf (MPI_Accumulate).
//
// Local. It returns when buf can be used again. Flush or Fence completes it.
//
// Errors: [ErrOp] for an operation made by [NewOp], or one that does not apply to T.
//
// Deadline: [ErrTimeout]; some elements may have been updated.
func (w *Window[T]) Accumulate(buf []T, rank, disp int, op Op) error {
	o, err := accumulating[T](op)
	return w.base().Do("accumulate", comm.Access{Kind: flight.Accumulate, Op: o, Rank: rank, Disp: disp, In: view.Bytes(buf), Err: err})
}

// GetAccumulate updates elements as [Window.Accumulate] does, and stores in result what they were before
// (MPI_Get_accumulate).
//
// Local. It is complete when it returns.
//
// Buffers: result is as long as buf. Passing the same slice works; other overlaps are [ErrBuffer].
//
// Errors and deadline: as for Accumulate.
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
// Local. It is complete when it returns.
//
// Errors: as for Accumulate.
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
// Local. It is complete when it returns.
//
// Errors: [ErrType] for other elements.
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

// Flush waits until the calling rank's operations on the part of a rank are complete there (MPI_Win_flush).
//
// Local.
//
// Deadline: [ErrTimeout].
func (w *Window[T]) Flush(rank int) error { return w.base().Flush(rank) }

// FlushAll is Flush for the parts of all ranks (MPI_Win_flush_all).
func (w *Window[T]) FlushAll() error { return w.base().FlushAll() }

// Fence waits until all ranks have called it and all their operations are complete.
//
// Collective: all ranks of the communicator that the window was made from call it.
//
// Errors: [ErrMismatch] on every rank if one calls something else.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func (w *Window[T]) Fence() error { return w.base().Fence() }

// Lock waits until the calling rank holds the lock of the part of a rank (MPI_Win_lock). A lock excludes other
// locks of the part, and nothing else: operations need none, and those of ranks without one go on. The goroutines
// of a rank together hold each lock at most once. A rank that waits for an exclusive lock goes before ranks that
// come later to share it.
//
// Local, but Lock waits while other ranks hold a lock that excludes this one.
//
// Errors: [ErrWin] for an unknown kind, and if the rank already holds the lock or another of its goroutines
// waits for it.
//
// Deadline: [ErrTimeout] names the rank that holds the lock.
func (w *Window[T]) Lock(kind LockKind, rank int) error {
	return w.base().Lock(window.Kind(kind), rank)
}

// Unlock releases the lock of the part of a rank (MPI_Win_unlock). The next rank that gets it sees what this one
// has written to the part before.
//
// Local.
//
// Errors: [ErrWin] if the rank does not hold the lock.
func (w *Window[T]) Unlock(rank int) error { return w.base().Unlock(rank) }

// Close closes the window. What [Window.Local] returned must not be used afterwards. Closing again, or closing a
// nil window, does nothing. Closing the communicator closes its windows.
//
// Collective: all ranks call it, and wait for each other.
//
// Errors: [ErrWin] if the rank held a lock, which is released; the window is closed nevertheless.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived; the window is closed nevertheless.
func (w *Window[T]) Close() error { return w.base().Close() }

// accumulating returns op for one-sided operations on T.
func accumulating[T any](op Op) (*backend.Op, error) {
	if op.user != nil {
		return nil, fault(ErrOp, "one-sided operations take the predefined reductions only, as in MPI")
	}
	return opFor[T](op)
}
