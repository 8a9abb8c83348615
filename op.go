package cohort

import (
	"reflect"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/kernel"
	"github.com/cohort-hpc/cohort/internal/view"
)

// Op is a reduction operation. The zero Op is invalid. Ops can be compared and
// copied, and used by any number of goroutines.
type Op struct {
	code backend.OpCode
	user *userOp
}

// The predefined operations (MPI-4.1 section 6.9.2). On integers Sum and Prod
// wrap around as Go's do; Land, Lor and Lxor take what is not 0 for true and
// give 0 or 1; of floats, Min and Max choose a NaN before any number and take -0
// for less than +0, as Go's min and max do. Complex numbers have Sum and Prod
// only, bools Land, Lor and Lxor, a [Loc] MinLoc and MaxLoc, which take the
// lower index of equal values.
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

// String returns the operation's name; "user" for one made by NewOp.
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
	err  error // why it cannot be used
}

// NewOp makes an operation on elements of T from a function that sets
// inout[i] = in[i] op inout[i] for every i, where in comes from the lower ranks.
// The operation must be associative; a commutative one may be combined in
// another order, but always in the same one for the same number of ranks and
// length. All ranks must use the same function.
//
// The function must not keep the slices, must not call cohort, and may be called
// by several goroutines at once. A panic in it fails the operation with
// [ErrOp].
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
			// The result goes where in is, which the function must not write.
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

// numberOps and locOps have the predefined operations, by code and kind; nil
// where the operation does not apply.
var (
	numberOps = newOps(kernel.For, &numberTypes)
	locOps    = newOps(kernel.ForLoc, &locTypes)
)

type opTable [backend.OpMaxLoc + 1][backend.Loc]*backend.Op

func newOps(apply func(backend.OpCode, backend.Kind) kernel.Apply, types *kindTable) (t opTable) {
	for code := backend.OpSum; code <= backend.OpMaxLoc; code++ {
		for k, d := range types {
			if d == nil {
				continue
			}
			if f := apply(code, backend.Kind(k)); f != nil {
				t[code][k] = &backend.Op{Code: code, Commutative: true, Type: d, Apply: f}
			}
		}
	}
	return t
}

// opFor returns op for elements of T: ErrOp if it does not apply to them. It
// does not allocate but for errors.
func opFor[T any](op Op) (*backend.Op, error) {
	t := reflect.TypeFor[T]()
	if op.user != nil {
		return op.user.forType(t)
	}
	d := numberType(t)
	if d != nil {
		if b := numberOps[op.code][d.Kind]; b != nil {
			return b, nil
		}
		return nil, op.refuse(t)
	}
	d, err := layoutOf(t)
	if err != nil {
		return nil, err
	}
	if d.Kind == backend.Loc {
		if b := locOps[op.code][d.Elem]; b != nil {
			return b, nil
		}
	}
	return nil, op.refuse(t)
}

func (op Op) refuse(t reflect.Type) error {
	return fault(ErrOp, op.String()+" does not apply to "+t.String())
}

func (u *userOp) forType(t reflect.Type) (*backend.Op, error) {
	switch {
	case u.err != nil:
		return nil, u.err
	case u.elem != t:
		return nil, fault(ErrOp, "the operation is on "+u.elem.String()+", not on "+t.String())
	}
	return u.op, nil
}
