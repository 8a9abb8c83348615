package sddp

import "math/bits"

// philox is Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC11). It maps a counter to four random words and has no state.
func philox(ctr [4]uint32, key [2]uint32) [4]uint32 {
	const (
		m0, m1 = 0xD2511F53, 0xCD9E8D57 // multipliers
		w0, w1 = 0x9E3779B9, 0xBB67AE85 // Weyl steps of the key: golden ratio, sqrt(3)-1
	)
	for round := range 10 {
		if round > 0 {
			key[0] += w0
			key[1] += w1
		}
		hi0, lo0 := bits.Mul32(m0, ctr[0])
		hi1, lo1 := bits.Mul32(m1, ctr[2])
		ctr = [4]uint32{hi1 ^ ctr[1] ^ key[0], lo1, hi0 ^ ctr[3] ^ key[1], lo0}
	}
	return ctr
}

// purpose is the last word of a counter, so draws for different purposes never share a counter.
type purpose uint32

const (
	forOpening purpose = iota // inflow of (stage, opening, reservoir)
	forPass                   // opening taken in (iteration, pass, stage)
	forPath                   // opening taken in (scenario, stage)
	forOutside                // inflow of (scenario, stage, reservoir), not among the openings
	forTest                   // opening taken in (iterations, scenario, stage) of a test of the gap
)

// drawBits returns 64 random bits for a purpose and three coordinates.
func drawBits(seed uint64, a, b, c int, p purpose) uint64 {
	out := philox([4]uint32{uint32(a), uint32(b), uint32(c), uint32(p)}, [2]uint32{uint32(seed), uint32(seed >> 32)})
	return uint64(out[0]) | uint64(out[1])<<32
}

// drawBelow returns a number from 0 to n-1, the high word of a product. Its bias is below n/2^64.
func drawBelow(seed uint64, n, a, b, c int, p purpose) int {
	hi, _ := bits.Mul64(drawBits(seed, a, b, c, p), uint64(n))
	return int(hi)
}

// drawUniform returns a number strictly between 0 and 1: the midpoint of one of 2^52 equal parts.
func drawUniform(seed uint64, a, b, c int, p purpose) float64 {
	return (float64(drawBits(seed, a, b, c, p)>>12) + 0.5) / (1 << 52)
}
