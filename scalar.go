package cohort

import (
	"sync"

	"github.com/cohort-hpc/cohort/internal/view"
)

// scalars is memory for the operands of the scalar forms, so that they do not
// allocate. Words, because they are aligned for every type; none of the types
// that get here holds a pointer.
var scalars = sync.Pool{New: func() any { return new([]uint64) }}

// scalar returns n elements of T in pooled memory, and nil if T has pointers
// and must not be put there. The call is then made without elements, for the
// other ranks to learn of it.
func scalar[T any](n int) (*[]uint64, []T) {
	t, err := typeFor[T]()
	if err != nil {
		return nil, nil
	}
	p := scalars.Get().(*[]uint64)
	words := (n*t.Size + 7) / 8
	if len(*p) < words {
		*p = make([]uint64, words)
	}
	return p, view.Of[T](view.Bytes(*p))[:n:n]
}

// BcastOne returns root's x on every rank.
//
// Collective: all ranks of c call it, with the same type and root.
//
// Buffers: none; x of the other ranks is not used.
//
// Errors: [ErrRoot], [ErrType] for bad arguments; [ErrMismatch] on every rank
// if the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func BcastOne[T any](c *Comm, x T, root int) (T, error) {
	var zero T
	p, buf := scalar[T](1)
	if buf == nil {
		return zero, Bcast(c, buf, root)
	}
	buf[0] = x
	if err := Bcast(c, buf, root); err != nil {
		return zero, err // p is not put back: an operation that failed may hold on to it
	}
	x = buf[0]
	scalars.Put(p)
	return x, nil
}

// ReduceOne returns on root the ranks' x combined with op, and the zero value
// on the other ranks.
//
// Collective: all ranks of c call it, with the same type, op and root.
//
// Buffers: none.
//
// Errors: [ErrRoot], [ErrOp] for bad arguments; [ErrMismatch] on every rank if
// the ranks' calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func ReduceOne[T Reducible](c *Comm, x T, op Op, root int) (T, error) {
	var zero T
	p, buf := scalar[T](2)
	if buf == nil {
		return zero, Reduce(c, buf, buf, op, root)
	}
	buf[0], buf[1] = x, zero
	if err := Reduce(c, buf[:1:1], buf[1:], op, root); err != nil {
		return zero, err
	}
	x = buf[1]
	scalars.Put(p)
	return x, nil
}

// AllreduceOne returns on every rank the ranks' x combined with op.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] for bad arguments; [ErrMismatch] on every rank if the ranks'
// calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func AllreduceOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	var zero T
	p, buf := scalar[T](2)
	if buf == nil {
		return zero, Allreduce(c, buf, buf, op)
	}
	buf[0] = x
	if err := Allreduce(c, buf[:1:1], buf[1:], op); err != nil {
		return zero, err
	}
	x = buf[1]
	scalars.Put(p)
	return x, nil
}

// ScanOne returns on rank r the x of ranks 0 to r combined with op.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] for bad arguments; [ErrMismatch] on every rank if the ranks'
// calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func ScanOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	var zero T
	p, buf := scalar[T](2)
	if buf == nil {
		return zero, Scan(c, buf, buf, op)
	}
	buf[0] = x
	if err := Scan(c, buf[:1:1], buf[1:], op); err != nil {
		return zero, err
	}
	x = buf[1]
	scalars.Put(p)
	return x, nil
}

// ExscanOne returns on rank r the x of ranks 0 to r-1 combined with op. Rank 0,
// which has no rank before it, gets the zero value, whatever op is.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] for bad arguments; [ErrMismatch] on every rank if the ranks'
// calls differ.
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the
// communicator is broken.
func ExscanOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	var zero T
	p, buf := scalar[T](2)
	if buf == nil {
		return zero, Exscan(c, buf, buf, op)
	}
	buf[0], buf[1] = x, zero
	if err := Exscan(c, buf[:1:1], buf[1:], op); err != nil {
		return zero, err
	}
	x = buf[1]
	scalars.Put(p)
	return x, nil
}
