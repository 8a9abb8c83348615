package tensor

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// divide divides numbers of a kind by n, the number of ranks: of integers it leaves the whole part.
// Halves are not of these kinds: their averages are those of floats.
func divide(kind backend.Kind, b []byte, n int) {
	if n == 1 {
		return
	}
	switch kind {
	case backend.Int8:
		divideInts[int8, int32](b, n)
	case backend.Int16:
		divideInts[int16, int32](b, n)
	case backend.Int32:
		divideInts[int32, int32](b, n)
	case backend.Int64:
		divideInts[int64, int64](b, n)
	case backend.Uint8:
		divideInts[uint8, uint32](b, n)
	case backend.Uint16:
		divideInts[uint16, uint32](b, n)
	case backend.Uint32:
		divideInts[uint32, uint32](b, n)
	case backend.Uint64:
		divideInts[uint64, uint64](b, n)
	case backend.Float32, backend.Complex64: // of complex numbers each part
		divideFloats[float32](b, n)
	case backend.Float64, backend.Complex128:
		divideFloats[float64](b, n)
	}
}

// divideInts divides as W: n may be no T.
func divideInts[T, W int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64](b []byte, n int) {
	x, d := view.Of[T](b), W(n)
	for i := range x {
		x[i] = T(W(x[i]) / d)
	}
}

func divideFloats[T float32 | float64](b []byte, n int) {
	x, d := view.Of[T](b), T(n)
	for i := range x {
		x[i] /= d
	}
}
