package kernel

import "github.com/cohort-hpc/cohort/backend"

// Apply is the function of a reduction; see backend.Op.
type Apply = func(dst, a, b []byte)

// For returns the function of a predefined operation on numbers of a kind, nil
// if the operation does not apply to them.
func For(op backend.OpCode, kind backend.Kind) Apply {
	switch kind {
	case backend.Bool:
		switch op {
		case backend.OpLand, backend.OpLor, backend.OpLxor:
			return forInteger[uint8](op)
		}
	case backend.Int8:
		return forInteger[int8](op)
	case backend.Int16:
		return forInteger[int16](op)
	case backend.Int32:
		return forInteger[int32](op)
	case backend.Int64:
		return forInteger[int64](op)
	case backend.Uint8:
		return forInteger[uint8](op)
	case backend.Uint16:
		return forInteger[uint16](op)
	case backend.Uint32:
		return forInteger[uint32](op)
	case backend.Uint64:
		return forInteger[uint64](op)
	case backend.Float16:
		return forHalf(op, false)
	case backend.BFloat16:
		return forHalf(op, true)
	case backend.Float32:
		return forReal[float32](op)
	case backend.Float64:
		return forReal[float64](op)
	case backend.Complex64:
		return forNumber[complex64](op)
	case backend.Complex128:
		return forNumber[complex128](op)
	}
	return nil
}

// ForLoc returns the function of MinLoc or MaxLoc on pairs with a value of a
// kind, nil for other operations and kinds.
func ForLoc(op backend.OpCode, elem backend.Kind) Apply {
	switch elem {
	case backend.Int8:
		return forLoc[int8](op)
	case backend.Int16:
		return forLoc[int16](op)
	case backend.Int32:
		return forLoc[int32](op)
	case backend.Int64:
		return forLoc[int64](op)
	case backend.Uint8:
		return forLoc[uint8](op)
	case backend.Uint16:
		return forLoc[uint16](op)
	case backend.Uint32:
		return forLoc[uint32](op)
	case backend.Uint64:
		return forLoc[uint64](op)
	case backend.Float16:
		return forHalfLoc(op, false)
	case backend.BFloat16:
		return forHalfLoc(op, true)
	case backend.Float32:
		return forLoc[float32](op)
	case backend.Float64:
		return forLoc[float64](op)
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

func forLoc[T real](op backend.OpCode) Apply {
	switch op {
	case backend.OpMinLoc:
		return minLoc[T]
	case backend.OpMaxLoc:
		return maxLoc[T]
	}
	return nil
}
