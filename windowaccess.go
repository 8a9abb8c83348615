package cohort

import (
	"fmt"
	"reflect"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/comm"
	"github.com/cohort-hpc/cohort/internal/flight"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Put writes buf to the target (MPI_Put).
//
// Not collective. It returns when buf can be used again. Flush or Fence completes it.
//
// Errors: those of all operations of a [Window].
//
// Deadline: [ErrTimeout]; a part of buf may have been written.
func (w *Window[T]) Put(buf []T, rank, disp int) error {
	return w.base().Do("put", comm.Access{Kind: flight.Put, Rank: rank, Disp: disp, In: view.Bytes(buf)})
}

// Get reads elements of the target into buf (MPI_Get).
//
// Not collective. It returns when buf has them.
//
// Errors: those of all operations of a [Window].
//
// Deadline: [ErrTimeout]; the elements of buf are undefined.
func (w *Window[T]) Get(buf []T, rank, disp int) error {
	return w.base().Do("get", comm.Access{Kind: flight.Get, Rank: rank, Disp: disp, Out: view.Bytes(buf)})
}

// Accumulate sets each element of the target to its combination with that of buf (MPI_Accumulate).
//
// Not collective. It returns when buf can be used again. Flush or Fence completes it.
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
// Not collective. It is complete when it returns.
//
// Buffers: result is as long as buf. Passing the same slice works; other overlaps are [ErrBuffer].
//
// Errors: those of Accumulate; [ErrBuffer].
//
// Deadline: as for Accumulate.
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
// Not collective. It is complete when it returns.
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
// Not collective. It is complete when it returns.
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

// accumulating returns op for one-sided operations on T.
func accumulating[T any](op Op) (*backend.Op, error) {
	if op.user != nil {
		return nil, fault(ErrOp, "one-sided operations take the predefined reductions only, as in MPI")
	}
	return opFor[T](op)
}
