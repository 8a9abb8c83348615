package backend

import (
	"fmt"
	"runtime"
	"strings"
)

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
	return Faultf(ErrOp, "the operation's function %s", Panicked(p))
}

// Panicked says where a function of the user has panicked, and with what: "panicked in main.add (add.go:12): no luck".
// A deferred function calls it, or one that it calls.
func Panicked(p any) string {
	return fmt.Sprintf("%s: %v", panicked(), p)
}

// panicked is Panicked without the value.
func panicked() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	for panicking, more := false, true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if panicking && !strings.HasPrefix(f.Function, "runtime.") {
			return fmt.Sprintf("panicked in %s (%s:%d)", f.Function, f.File, f.Line)
		}
		panicking = panicking || f.Function == "runtime.gopanic"
	}
	return "panicked"
}
