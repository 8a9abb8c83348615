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

// one calls do with operands in pooled memory: send, which has x, and recv, of which it returns the
// content. If T is not a valid element type, it calls do without them.
func one[T any](x T, do func(send, recv []T) error) (T, error) {
	var zero T
	p, buf := scalar[T](2)
	if buf == nil {
		return zero, do(nil, nil)
	}
	buf[0], buf[1] = x, zero
	if err := do(buf[:1:1], buf[1:]); err != nil {
		return zero, err // a failed operation may still use p
	}
	x = buf[1]
	scalars.Put(p)
	return x, nil
}

// BcastOne returns root's x on every rank. It is [Bcast] of one element; x is not used on the other
// ranks.
//
// Collective; errors, deadline: as for [Bcast].
func BcastOne[T any](c *Comm, x T, root int) (T, error) {
	return one(x, func(send, recv []T) error {
		copy(recv, send)
		return Bcast(c, recv, root)
	})
}

// ReduceOne combines the x of all ranks with op. It is [Reduce] of one element, and returns the result
// on root and the zero value on the other ranks.
//
// Collective; errors, deadline: as for [Reduce].
func ReduceOne[T Reducible](c *Comm, x T, op Op, root int) (T, error) {
	return one(x, func(send, recv []T) error { return Reduce(c, send, recv, op, root) })
}

// AllreduceOne combines the x of all ranks with op and returns the result on every rank. It is
// [Allreduce] of one element.
//
// Collective; errors, deadline: as for [Allreduce].
func AllreduceOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	return one(x, func(send, recv []T) error { return Allreduce(c, send, recv, op) })
}

// ScanOne combines the x of ranks 0 to r with op and returns the result on rank r. It is [Scan] of one
// element.
//
// Collective; errors, deadline: as for [Scan].
func ScanOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	return one(x, func(send, recv []T) error { return Scan(c, send, recv, op) })
}

// ExscanOne combines the x of ranks 0 to r-1 with op and returns the result on rank r. It is [Exscan] of
// one element. Rank 0 has no rank before it and gets the zero value, whatever op is.
//
// Collective; errors, deadline: as for [Exscan].
func ExscanOne[T Reducible](c *Comm, x T, op Op) (T, error) {
	return one(x, func(send, recv []T) error { return Exscan(c, send, recv, op) })
}
