package exact

import (
	"math"
	"math/bits"
)

// A sum is stored as limbs: integers, of which limb i counts units of 2^(32i+exp). Neighbors overlap by 31 bits, so that
// many numbers can be added to a limb before their carries must be moved to the next one: the small superaccumulator of
// R. Neal, "Fast exact summation using small and large superaccumulators", 2015.

const low = 1<<32 - 1 // the bits that a limb does not share

// carry leaves the low 32 bits of each limb in it, as a number from -2^31 to 2^31-1, and moves what is above to the next
// limb. The last limb keeps all its bits.
func carry(limbs []int64) {
	c := int64(0)
	last := len(limbs) - 1
	for i, v := range limbs[:last] {
		v += c
		d := int64(int32(v))
		limbs[i], c = d, (v-d)>>32
	}
	limbs[last] += c
}

// format is a binary format of IEEE 754.
type format struct {
	mantissa int // bits after the point
	least    int // the exponent of the smallest subnormal
	inf      uint64
	sign     uint64
}

var (
	single = format{23, -149, 0xff << 23, 1 << 31}
	double = format{52, -1074, 0x7ff << 52, 1 << 63}
)

// number returns the number with these bits.
func number[T float32 | float64](b uint64) T {
	if isSingle[T]() {
		return T(math.Float32frombits(uint32(b)))
	}
	return T(math.Float64frombits(b))
}

// isSingle reports whether T is float32.
func isSingle[T float32 | float64]() bool {
	_, single := any(T(0)).(float32)
	return single
}

func formatOf[T float32 | float64]() *format {
	if isSingle[T]() {
		return &single
	}
	return &double
}

// round returns the bits of the number nearest to a sum; of two, that with the even mantissa. It overwrites the limbs,
// each of which must be at least 2^32 away from overflow.
func (f *format) round(limbs []int64, exp int) uint64 {
	// 1. Make all limbs digits from 0 to 2^32-1, and c the digit above them.
	c := int64(0)
	for i, v := range limbs {
		v += c
		limbs[i], c = v&low, v>>32
	}
	sign := uint64(0)
	if c < 0 {
		sign = f.sign
		borrow := int64(0)
		for i, v := range limbs {
			v = borrow - v
			limbs[i], borrow = v&low, v>>32
		}
		c = borrow - c
	}
	// 2. Take 64 bits from the first that is 1 on.
	n := len(limbs)
	for n > 0 && c == 0 {
		n--
		c = limbs[n]
	}
	if c == 0 {
		return 0
	}
	m, e, more := uint64(c)<<32, exp+32*n-32, false
	shift := bits.LeadingZeros64(m)
	m, e = m<<shift, e-shift
	if n > 0 {
		n--
		m |= uint64(limbs[n]) << shift
	}
	if n > 0 {
		n--
		m |= uint64(limbs[n]) << shift >> 32
		more = uint64(limbs[n])<<shift&low != 0
	}
	for n > 0 && !more {
		n--
		more = limbs[n] != 0
	}
	return f.pack(sign, m, e, more)
}

// round128 is round for the sum of (hi·2^64 + lo)·2^exp.
func (f *format) round128(hi int64, lo uint64, exp int) uint64 {
	sign := uint64(0)
	if hi < 0 {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi = -hi - int64(borrow)
		sign = f.sign
	}
	m, e := uint64(hi), exp+64
	if m == 0 {
		if lo == 0 {
			return 0
		}
		m, lo, e = lo, 0, exp
	}
	shift := bits.LeadingZeros64(m)
	return f.pack(sign, m<<shift|lo>>(64-shift), e-shift, lo<<shift != 0)
}

// pack returns the bits of the number nearest to m·2^e, or to a little more. The highest bit of m is 1.
func (f *format) pack(sign, m uint64, e int, more bool) uint64 {
	// 1. Drop all bits but those of the mantissa, and those below the smallest subnormal.
	drop := max(63-f.mantissa, f.least-e)
	if drop > 64 {
		return sign
	}
	b, rest := m>>drop, m<<(64-drop)
	if rest > 1<<63 || rest == 1<<63 && (more || b&1 == 1) {
		b++
	}
	// 2. The first bit of the mantissa adds 1 to the exponent, which thereby is 0 for subnormal numbers.
	if e+drop-f.least >= int(f.inf>>f.mantissa) {
		return sign | f.inf
	}
	return sign | min(b+uint64(e+drop-f.least)<<f.mantissa, f.inf)
}
