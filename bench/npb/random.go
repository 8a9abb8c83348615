package npb

const (
	multiplier = 1220703125 // 5^13
	modulus    = 1 << 46
	scale      = 1.0 / modulus
)

// Random is the generator of the benchmarks: x(k+1) = 5^13 x(k) mod 2^46. Its value is x(k). The zero value gives
// zeros; begin with a seed.
type Random uint64

// Seed is the seed of all kernels but EP.
const Seed Random = 314159265

// Next returns x(k+1) 2^-46, a number between 0 and 1, and steps to it.
func (r *Random) Next() float64 {
	*r = *r * multiplier % modulus
	return float64(int64(*r)) * scale
}

// Skip makes n steps, in time that grows with the logarithm of n.
func (r *Random) Skip(n uint64) { *r = *r * power(n) % modulus }

// Fill puts the next numbers into x. Four interleaved sequences wait for each other less than one does.
func (r *Random) Fill(x []float64) {
	const four = multiplier * multiplier % modulus * multiplier % modulus * multiplier % modulus
	if len(x) >= 4 {
		a := *r * multiplier % modulus
		b := a * multiplier % modulus
		c := b * multiplier % modulus
		d := c * multiplier % modulus
		for ; len(x) >= 4; x = x[4:] {
			x[0], x[1], x[2], x[3] = float64(int64(a))*scale, float64(int64(b))*scale, float64(int64(c))*scale, float64(int64(d))*scale
			*r = d
			a, b, c, d = a*four%modulus, b*four%modulus, c*four%modulus, d*four%modulus
		}
	}
	for i := range x {
		x[i] = r.Next()
	}
}

// power returns multiplier^n mod 2^46.
func power(n uint64) Random {
	p, square := Random(1), Random(multiplier)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			p = p * square % modulus
		}
		square = square * square % modulus
	}
	return p
}
