package kernel

import "math"

// Widen converts half-precision numbers, bfloat16 ones if bf says so, to float32. The slices have the same
// length. A NaN stays a NaN, and may become quiet.
func Widen(dst []float32, src []uint16, bf bool) {
	src = src[:len(dst)]
	n := widenMost(dst, src, bf)
	widenEach(dst[n:], src[n:], bf)
}

func widenEach(dst []float32, src []uint16, bf bool) {
	src = src[:len(dst)]
	if !bf {
		for i, h := range src {
			dst[i] = F16ToF32(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// Narrow rounds float32 numbers to the nearest half-precision ones, ties to even. The slices have the same
// length. The result for a NaN is the same on all processors.
func Narrow(dst []uint16, src []float32, bf bool) {
	src = src[:len(dst)]
	n := narrowMost(dst, src, bf)
	narrowEach(dst[n:], src[n:], bf)
}

func narrowEach(dst []uint16, src []float32, bf bool) {
	src = src[:len(dst)]
	if !bf {
		for i, x := range src {
			dst[i] = F16FromF32(x)
		}
		return
	}
	for i, x := range src {
		dst[i] = BF16FromF32(x)
	}
}
