package kernel

import (
	"math"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// F16ToF32 returns the value of an IEEE 754 binary16 number.
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h) & 0x3ff
	switch exp {
	case 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0: // zero and subnormal: frac * 2^-24, which float32 has exactly
		v := float32(frac) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(v))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// F16FromF32 returns the binary16 number nearest to x, ties to even. Numbers
// that are too large become infinite; a NaN stays one.
func F16FromF32(x float32) uint16 {
	bits := math.Float32bits(x)
	sign := uint16(bits>>16) & 0x8000
	bits &= 0x7fffffff
	switch {
	case bits > 0x7f800000: // NaN: quiet, with what fits of its payload
		return sign | 0x7e00 | uint16(bits>>13)&0x1ff
	case bits >= 0x477ff000: // 65520 and up round to infinity
		return sign | 0x7c00
	case bits >= 0x38800000: // normal: round the 13 bits that are cut off
		bits += 0xfff + bits>>13&1
		return sign | uint16((bits-(127-15)<<23)>>13)
	}
	// Subnormal or zero. Adding 0.5 leaves a float32 whose last bit is worth
	// 2^-24, the unit of subnormal halves: the addition does the rounding.
	v := math.Float32frombits(bits) + 0.5
	return sign | uint16(math.Float32bits(v)-0x3f000000)
}

// BF16ToF32 returns the value of a bfloat16 number.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// BF16FromF32 returns the bfloat16 number nearest to x, ties to even. Numbers
// that are too large become infinite; a NaN stays one.
func BF16FromF32(x float32) uint16 {
	bits := math.Float32bits(x)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// halfBlock is how many elements are widened at a time: blocks of three vectors fit in the
// first-level cache.
const halfBlock = 64

// half combines half-precision vectors as float32.
func half(op backend.OpCode, bf bool, dst, a, b []byte) {
	var left, right [halfBlock]float32
	for d, p, q := view.Of[uint16](dst), view.Of[uint16](a), view.Of[uint16](b); len(d) > 0; {
		n := min(len(d), halfBlock)
		x, y := left[:n], right[:n]
		Widen(x, p[:n], bf)
		Widen(y, q[:n], bf)
		switch op {
		case backend.OpSum:
			for i := range x {
				x[i] += y[i]
			}
		case backend.OpProd:
			for i := range x {
				x[i] *= y[i]
			}
		case backend.OpMin:
			for i := range x {
				x[i] = min(x[i], y[i])
			}
		case backend.OpMax:
			for i := range x {
				x[i] = max(x[i], y[i])
			}
		}
		Narrow(d[:n], x, bf)
		d, p, q = d[n:], p[n:], q[n:]
	}
}

func forHalf(op backend.OpCode, bf bool) Apply {
	switch op {
	case backend.OpSum, backend.OpProd, backend.OpMin, backend.OpMax:
		return func(dst, a, b []byte) { half(op, bf, dst, a, b) }
	}
	return nil
}

func forHalfLoc(op backend.OpCode, value func(uint16) float32) Apply {
	switch op {
	case backend.OpMinLoc:
		return loc(func(x, y uint16) bool { return before(value(x), value(y)) })
	case backend.OpMaxLoc:
		return loc(func(x, y uint16) bool { return after(value(x), value(y)) })
	}
	return nil
}
