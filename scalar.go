package cohort

import (
	"sync"

	"github.com/cohort-hpc/cohort/internal/view"
)

// scalars pools memory for the operands of the scalar forms, so that they do not allocate. Words
// are aligned for every type, and no type stored here contains pointers.
var scalars = sync.Pool{New: func() any { return new([]uint64) }}

// scalar returns n elements of T in pooled memory, or nil if T is not a valid element type. The
// caller then makes the collective call without elements, so that the other ranks learn of the
// error.
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
// Buffers: none; x is not used on the other ranks.
//
// Errors: [ErrRoot] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the ranks'
// calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
func BcastOne[T any](c *Comm, x T, root int) (T, error) {
	var zero T
	p, buf := scalar[T](1)
	if buf == nil {
		return zero, Bcast(c, buf, root)
	}
	buf[0] = x
	if err := Bcast(c, buf, root); err != nil {
		return zero, err // a failed operation may still use p
	}
	x = buf[0]
	scalars.Put(p)
	return x, nil
}

// ReduceOne combines the x of all ranks with op. It returns the result on root and the zero value
// on the other ranks.
//
// Collective: all ranks of c call it, with the same type, op and root.
//
// Buffers: none.
//
// Errors: [ErrRoot], [ErrOp] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the
// ranks' calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
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

// AllreduceOne combines the x of all ranks with op and returns the result on every rank.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the ranks'
// calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
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

// ScanOne combines the x of ranks 0 to r with op and returns the result on rank r.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the ranks'
// calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
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

// ExscanOne combines the x of ranks 0 to r-1 with op and returns the result on rank r. Rank 0 has
// no rank before it and gets the zero value, whatever op is.
//
// Collective: all ranks of c call it, with the same type and op.
//
// Buffers: none.
//
// Errors: [ErrOp] and [ErrType] for wrong arguments; [ErrMismatch] on every rank if the ranks'
// calls differ (on mpi with Config.Check).
//
// Deadline: [ErrTimeout] names the ranks that had not arrived, and the communicator is broken.
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
