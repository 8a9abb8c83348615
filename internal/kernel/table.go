package kernel

import "github.com/cohort-hpc/cohort/backend"

// Apply is the function of a reduction; see backend.Op.
type Apply = func(dst, a, b []byte)

// numbers contains the operations on each kind of number, locs those on pairs with a value of a kind.
var (
	numbers = [backend.Loc + 1]func(backend.OpCode) Apply{
		backend.Bool: forBool,
		backend.Int8: forInteger[int8], backend.Int16: forInteger[int16], backend.Int32: forInteger[int32], backend.Int64: forInteger[int64],
		backend.Uint8: forInteger[uint8], backend.Uint16: forInteger[uint16], backend.Uint32: forInteger[uint32], backend.Uint64: forInteger[uint64],
		backend.Float16:  func(op backend.OpCode) Apply { return forHalf(op, false) },
		backend.BFloat16: func(op backend.OpCode) Apply { return forHalf(op, true) },
		backend.Float32:  forReal[float32], backend.Float64: forReal[float64],
		backend.Complex64: forNumber[complex64], backend.Complex128: forNumber[complex128],
	}
	locs = [backend.Loc + 1]func(backend.OpCode) Apply{
		backend.Int8: forLoc[int8], backend.Int16: forLoc[int16], backend.Int32: forLoc[int32], backend.Int64: forLoc[int64],
		backend.Uint8: forLoc[uint8], backend.Uint16: forLoc[uint16], backend.Uint32: forLoc[uint32], backend.Uint64: forLoc[uint64],
		backend.Float16:  func(op backend.OpCode) Apply { return forHalfLoc(op, F16ToF32) },
		backend.BFloat16: func(op backend.OpCode) Apply { return forHalfLoc(op, BF16ToF32) },
		backend.Float32:  forLoc[float32], backend.Float64: forLoc[float64],
	}
)

// For returns the function of a predefined operation on numbers of a kind, nil
// if the operation does not apply to them.
func For(op backend.OpCode, kind backend.Kind) Apply {
	if f := numbers[kind]; f != nil {
		return f(op)
	}
	return nil
}

// ForLoc returns the function of MinLoc or MaxLoc on pairs with a value of a
// kind, nil for other operations and kinds.
func ForLoc(op backend.OpCode, elem backend.Kind) Apply {
	if f := locs[elem]; f != nil {
		return f(op)
	}
	return nil
}

func forBool(op backend.OpCode) Apply {
	switch op {
	case backend.OpLand, backend.OpLor, backend.OpLxor:
		return forInteger[uint8](op)
	}
	return nil
}

func forNumber[T number](op backend.OpCode) Apply {
	switch op {
	case backend.OpSum:
		return sum[T]
	case backend.OpProd:
		return prod[T]
	}
	return nil
}

func forReal[T real](op backend.OpCode) Apply {
	switch op {
	case backend.OpMin:
		return minimum[T]
	case backend.OpMax:
		return maximum[T]
	}
	return forNumber[T](op)
}

func forInteger[T integer](op backend.OpCode) Apply {
	switch op {
	case backend.OpLand:
		return land[T]
	case backend.OpLor:
		return lor[T]
	case backend.OpLxor:
		return lxor[T]
	case backend.OpBand:
		return band
	case backend.OpBor:
		return bor
	case backend.OpBxor:
		return bxor
	}
	return forReal[T](op)
}
