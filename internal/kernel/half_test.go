package kernel

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// value16 is the definition of IEEE 754 binary16 (clause 3.4).
func value16(h uint16) float64 {
	s := 1.0
	if h>>15 == 1 {
		s = -1
	}
	e, f := int(h>>10&0x1f), float64(h&0x3ff)
	switch {
	case e == 31 && f == 0:
		return s * math.Inf(1)
	case e == 31:
		return math.NaN()
	case e == 0:
		return s * math.Ldexp(f, -24)
	}
	return s * math.Ldexp(1024+f, e-25)
}

func value16b(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }

func same(a, b float64) bool {
	return a != a && b != b || a == b && math.Signbit(a) == math.Signbit(b)
}

func TestHalfConversionsOfKnownValues(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		if got, want := float64(F16ToF32(h)), value16(h); !same(got, want) {
			t.Fatalf("F16ToF32(%#04x) = %v, want %v", h, got, want)
		}
		if back := F16FromF32(F16ToF32(h)); back != h && value16(h) == value16(h) {
			t.Fatalf("%#04x comes back as %#04x", h, back)
		}
		if back := BF16FromF32(BF16ToF32(h)); back != h && value16b(h) == value16b(h) {
			t.Fatalf("bfloat16 %#04x comes back as %#04x", h, back)
		}
	}
}

// nearest finds the number nearest to x, ties to even, among the finite
// non-negative ones of a format, which its bits order, by binary search. Above
// the largest, the next value the format would have decides.
func nearest(x float64, value func(uint16) float64, inf uint16) uint16 {
	sign := uint16(0)
	if math.Signbit(x) {
		sign, x = 0x8000, -x
	}
	at := func(i int) float64 {
		if uint16(i) == inf { // what would follow the largest finite number
			return 2*value(inf-1) - value(inf-2)
		}
		return value(uint16(i))
	}
	i := sort.Search(int(inf), func(i int) bool { return at(i) >= x })
	if i == 0 {
		return sign
	}
	if x > at(int(inf)) {
		return sign | inf
	}
	lo, hi := x-at(i-1), at(i)-x
	if lo < hi || lo == hi && (i-1)&1 == 0 {
		i--
	}
	return sign | uint16(i)
}

func TestHalfRoundsToNearestEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	check := func(x float32) {
		if x != x {
			if h := F16FromF32(x); h&0x7fff <= 0x7c00 {
				t.Fatalf("F16FromF32(NaN %#08x) = %#04x is a number", math.Float32bits(x), h)
			}
			if h := BF16FromF32(x); h&0x7fff <= 0x7f80 {
				t.Fatalf("BF16FromF32(NaN %#08x) = %#04x is a number", math.Float32bits(x), h)
			}
			return
		}
		if got, want := F16FromF32(x), nearest(float64(x), value16, 0x7c00); got != want {
			t.Fatalf("F16FromF32(%g) = %#04x, want %#04x", x, got, want)
		}
		if got, want := BF16FromF32(x), nearest(float64(x), value16b, 0x7f80); got != want {
			t.Fatalf("BF16FromF32(%g) = %#04x, want %#04x", x, got, want)
		}
	}
	for range 200_000 {
		check(math.Float32frombits(rng.Uint32()))
		check(float32(math.Ldexp(rng.Float64()*2-1, rng.IntN(50)-32)))
	}
	// Every half, the middle between it and the next, and what is just beside.
	for h := uint16(0); h < 0x7c00; h++ {
		mid := float32((value16(h) + value16(h+1)) / 2)
		if h == 0x7bff {
			mid = 65520
		}
		for _, x := range []float32{mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9), -mid} {
			check(x)
		}
	}
	for _, b := range []uint32{0, 1, 0x80000000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fc00000, 0xffffffff, 0x7f7f7fff, 0x7f7f8000} {
		check(math.Float32frombits(b))
	}
}
