package backend

import "runtime/debug"

// OpCode names a predefined reduction; OpUser is a user-defined one.
type OpCode uint8

// The predefined reductions (MPI-4.1 section 6.9.2).
const (
	OpUser OpCode = iota
	OpSum
	OpProd
	OpMin
	OpMax
	OpLand
	OpLor
	OpLxor
	OpBand
	OpBor
	OpBxor
	OpMinLoc
	OpMaxLoc
	numOps
)

var opNames = [numOps]string{
	"user", "sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "minloc", "maxloc",
}

// String returns the operation's name.
func (c OpCode) String() string {
	if c < numOps {
		return opNames[c]
	}
	return "invalid op"
}

// Op is a reduction bound to one Datatype. Ops are shared and never change.
type Op struct {
	Code        OpCode
	Commutative bool // the order of operands depends on it; see coll.Order
	Type        *Datatype

	// Apply sets dst[i] = a[i] op b[i] for every element; a holds the operand of
	// the lower ranks. All three slices have the same length in bytes, a multiple
	// of Type.Size. dst is a, or b, or overlaps neither. Apply of a predefined
	// reduction does not allocate.
	Apply func(dst, a, b []byte)
}

// UserFault returns the error of a call whose operation's function panicked with p, or, if p is nil, ended its
// goroutine. A deferred function calls it.
func UserFault(p any) error {
	if p == nil {
		return Faultf(ErrOp, "the operation's function ended its goroutine (runtime.Goexit)")
	}
	return Faultf(ErrOp, "the operation's function panicked: %v\n%s", p, debug.Stack())
}
