package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Vectors are converted as single numbers are, all of them, at every offset and length.
func TestWidenEqualsSingleConversions(t *testing.T) {
	for _, bf := range []bool{false, true} {
		one := F16ToF32
		if bf {
			one = BF16ToF32
		}
		src, dst := make([]uint16, 1<<16), make([]float32, 1<<16)
		for i := range src {
			src[i] = uint16(i)
		}
		Widen(dst, src, bf)
		for i, x := range dst {
			want := one(src[i])
			if got := math.Float32bits(x); got == math.Float32bits(want)|1<<22 && x != x {
				continue // a quiet NaN
			}
			if math.Float32bits(x) != math.Float32bits(want) {
				t.Fatalf("bf %v: %#x is %v (%#x), want %v (%#x)", bf, i, x, math.Float32bits(x), want, math.Float32bits(want))
			}
		}
		for lo := range 40 {
			for n := range 40 {
				part := make([]float32, n+1)
				part[n] = -1
				Widen(part[:n], src[0x3c00+lo:][:n], bf)
				for i := range n {
					if part[i] != one(src[0x3c00+lo+i]) {
						t.Fatalf("bf %v: %d of %d at %d is %v", bf, i, n, lo, part[i])
					}
				}
				if part[n] != -1 {
					t.Fatalf("bf %v: %d at %d wrote past the end", bf, n, lo)
				}
			}
		}
	}
}

func TestNarrowEqualsSingleConversions(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var src []float32
	for _, bits := range []uint32{0, 1, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff, 0x477fefff, 0x477ff000, 0x38800000, 0x387fffff, 0x33000000,
		0x33000001, 0x32ffffff, 0x33800000, 0x33c00000, 0x7f7fffff, 0x00800000, 0x007fffff} {
		src = append(src, math.Float32frombits(bits), math.Float32frombits(bits|1<<31))
	}
	for h := range 1 << 16 { // halves, what is between them, and what is beside that
		for _, x := range []float32{F16ToF32(uint16(h)), BF16ToF32(uint16(h))} {
			bits := math.Float32bits(x)
			for _, b := range []uint32{bits, bits + 0x1000, bits + 0xfff, bits + 0x1001, bits + 0x8000, bits + 0x7fff, bits + 0x8001} {
				src = append(src, math.Float32frombits(b))
			}
		}
	}
	for range 100000 {
		src = append(src, math.Float32frombits(r.Uint32()))
	}
	for _, bf := range []bool{false, true} {
		one := F16FromF32
		if bf {
			one = BF16FromF32
		}
		dst := make([]uint16, len(src))
		Narrow(dst, src, bf)
		for i, h := range dst {
			if want := one(src[i]); h != want {
				t.Fatalf("bf %v: %v (%#x) is %#x, want %#x", bf, src[i], math.Float32bits(src[i]), h, want)
			}
		}
		for lo := range 40 {
			for n := range 40 {
				part := make([]uint16, n+1)
				part[n] = 0x1234
				Narrow(part[:n], src[lo:][:n], bf)
				for i := range n {
					if part[i] != one(src[lo+i]) {
						t.Fatalf("bf %v: %d of %d at %d is %#x", bf, i, n, lo, part[i])
					}
				}
				if part[n] != 0x1234 {
					t.Fatalf("bf %v: %d at %d wrote past the end", bf, n, lo)
				}
			}
		}
	}
}

func BenchmarkWiden(b *testing.B) {
	const n = 1 << 20
	half, floats := make([]uint16, n), make([]float32, n)
	for i := range half {
		half[i] = F16FromF32(float32(i%1000) * 0.37)
	}
	for _, bf := range []bool{false, true} {
		b.Run(fmt.Sprintf("one by one/bf=%v", bf), func(b *testing.B) {
			b.SetBytes(2 * n)
			for b.Loop() {
				widenEach(floats, half, bf)
			}
		})
		b.Run(fmt.Sprintf("back/one by one/bf=%v", bf), func(b *testing.B) {
			Widen(floats, half, bf)
			b.SetBytes(2 * n)
			for b.Loop() {
				narrowEach(half, floats, bf)
			}
		})
		b.Run(fmt.Sprintf("bf=%v", bf), func(b *testing.B) {
			b.SetBytes(2 * n)
			for b.Loop() {
				Widen(floats, half, bf)
			}
		})
		b.Run(fmt.Sprintf("back/bf=%v", bf), func(b *testing.B) {
			Widen(floats, half, bf)
			b.SetBytes(2 * n)
			for b.Loop() {
				Narrow(half, floats, bf)
			}
		})
	}
}
