package kernel

import "golang.org/x/sys/cpu"

// vectors says that the processor has AVX2 and F16C.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasF16C

//go:noescape
func widenF16(dst []float32, src []uint16)

//go:noescape
func widenBF16(dst []float32, src []uint16)

//go:noescape
func narrowF16(dst []uint16, src []float32)

//go:noescape
func narrowBF16(dst []uint16, src []float32)

// widenMost and narrowMost convert as many numbers as vectors do, and return how many.
func widenMost(dst []float32, src []uint16, bf bool) int {
	switch {
	case !vectors:
		return 0
	case bf:
		widenBF16(dst, src)
	default:
		widenF16(dst, src)
	}
	return len(dst) &^ 7
}

func narrowMost(dst []uint16, src []float32, bf bool) int {
	switch {
	case !vectors:
		return 0
	case bf:
		narrowBF16(dst, src)
	default:
		narrowF16(dst, src)
	}
	return len(dst) &^ 7
}
