package cohort

import (
	"reflect"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Op is a reduction operation. The zero Op is invalid. Ops can be compared and copied, and any
// number of goroutines may use one.
type Op struct {
	code backend.OpCode
	user *userOp
}

// The predefined operations (MPI-4.1 section 6.9.2):
//
//   - Sum and Prod apply to all numbers. On integers they wrap around as in Go.
//   - Min and Max apply to integers and floats. As Go's min and max, they prefer NaN to any number
//     and order -0 below +0.
//   - Land, Lor and Lxor apply to integers and bools. Integers other than 0 are true; the result is
//     0 or 1.
//   - Band, Bor and Bxor apply to integers.
//   - MinLoc and MaxLoc apply to [Loc]. Of equal values, the one with the lower index is the
//     result.
var (
	Sum    = Op{code: backend.OpSum}
	Prod   = Op{code: backend.OpProd}
	Min    = Op{code: backend.OpMin}
	Max    = Op{code: backend.OpMax}
	Land   = Op{code: backend.OpLand}
	Lor    = Op{code: backend.OpLor}
	Lxor   = Op{code: backend.OpLxor}
	Band   = Op{code: backend.OpBand}
	Bor    = Op{code: backend.OpBor}
	Bxor   = Op{code: backend.OpBxor}
	MinLoc = Op{code: backend.OpMinLoc}
	MaxLoc = Op{code: backend.OpMaxLoc}
)

// String returns the name of the operation, "user" for one made by [NewOp].
func (op Op) String() string {
	if op == (Op{}) {
		return "invalid op"
	}
	return op.code.String()
}

// userOp is an operation made by NewOp.
type userOp struct {
	elem reflect.Type
	op   *backend.Op
	err  error // why it is invalid
}

// NewOp makes an operation on elements of T from a function that sets inout[i] = in[i] op inout[i]
// for every i, where in is from lower ranks than inout. The operation must be associative. If it is
// commutative, the ranks' values may be combined in another order, as docs/algorithms.md describes.
// All ranks must use the same function.
//
// Not collective. The function must not keep the slices and must not call cohort. Several goroutines may
// call it at once. A nonblocking or persistent reduction calls it in the goroutine that starts the
// reduction, in one that waits, or in another one, also while the program computes. If it still runs
// after the deadline of a reduction, it may still read the buffers of ranks that have returned.
//
// If the function panics, the reduction returns [ErrOp] on this rank, and the communicator is
// broken. The other ranks get an error from the reduction, or from their next operation if they
// have their result already. The same holds if the function calls [runtime.Goexit], except that
// this ends the goroutine if the reduction is blocking.
//
// Errors: none from the call. A reduction with the operation returns [ErrType] if T is not a valid
// element type, and [ErrOp] if the function is nil, panics, or was made for another type.
func NewOp[T any](commutative bool, apply func(in, inout []T)) Op {
	u := &userOp{elem: reflect.TypeFor[T]()}
	typ, err := typeFor[T]()
	switch {
	case err != nil:
		u.err = err
		return Op{user: u}
	case apply == nil:
		u.err = fault(ErrOp, "the operation's function is nil")
		return Op{user: u}
	}
	var temps sync.Pool // of *[]T
	u.op = &backend.Op{Code: backend.OpUser, Commutative: commutative, Type: typ, Apply: func(dst, a, b []byte) {
		in, inout, d := view.Of[T](a), view.Of[T](b), view.Of[T](dst)
		switch {
		case len(d) == 0:
		case view.Same(dst, b):
			apply(in, inout)
		case view.Same(dst, a):
			// The result replaces in, which the function must not write.
			t, _ := temps.Get().(*[]T)
			if t == nil {
				t = new([]T)
			}
			*t = append((*t)[:0], inout...)
			apply(in, *t)
			copy(d, *t)
			temps.Put(t)
		default:
			copy(d, inout)
			apply(in, d)
		}
	}}
	return Op{user: u}
}

// opFor returns op for elements of T. It is an ErrType if they cannot be sent, and an ErrOp if op does
// not apply to them. It allocates for errors only.
func opFor[T any](op Op) (*backend.Op, error) {
	t := reflect.TypeFor[T]()
	if op.user == nil {
		return types.OpFor(op.code, t)
	}
	if op.user.err == nil && op.user.elem == t {
		return op.user.op, nil
	}
	if _, err := types.Of(t); err != nil {
		return nil, err
	}
	if op.user.err != nil {
		return nil, op.user.err
	}
	return nil, fault(ErrOp, "the operation was made for "+op.user.elem.String()+", not for "+t.String())
}
