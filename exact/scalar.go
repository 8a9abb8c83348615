package exact

import (
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/cohort-hpc/cohort"
)

// A total is a list of integers, so that an Allreduce can add those of all ranks: first these counts, then limbs.
const (
	values    = iota // all numbers
	negZeros         // -0
	nans             // NaN
	infs             // +Inf
	negInfs          // -Inf
	refusals         // ranks whose arguments are wrong
	numCounts        // where the limbs begin
)

const (
	sumLimbs, sumExp = 67, -1075  // numbers have bits from 2^-1074 to 2^1023, and a sum of 2^48 of them has 48 more
	dotLimbs, dotExp = 134, -2150 // products have bits from 2^-2148 to 2^2047
)

type total [numCounts + dotLimbs + 1]int64

// burst is how many numbers or products can be added between carries. Each adds less than 2^52 to a limb.
//
// Invariant: no limb exceeds 2^31 + burst·2^52, which is below 2^63-2^32.
const burst = 1024

var totals = sync.Pool{New: func() any { return new(total) }}

// add adds at most burst numbers.
func add[T float32 | float64](t *total, xs []T) {
	limbs := (*[sumLimbs]int64)(t[numCounts:])
	for _, x := range xs {
		b := math.Float64bits(float64(x))
		e := b >> 52 & 0x7ff
		if e == 0 || e == 0x7ff {
			t.odd(float64(x))
			continue
		}
		m, sign := b&(1<<52-1)|1<<52, int64(b)>>63
		lo, hi := int64(m<<(e&31)&low), int64(m>>(32-e&31))
		limbs[e/32] += lo ^ sign - sign
		limbs[e/32+1] += hi ^ sign - sign
	}
}

// odd adds a number that is not a normal one.
func (t *total) odd(x float64) {
	switch {
	case x != x:
		t[nans]++
	case x > math.MaxFloat64:
		t[infs]++
	case x < -math.MaxFloat64:
		t[negInfs]++
	case x != 0: // subnormal
		m, sign := math.Float64bits(x)&(1<<52-1), int64(math.Float64bits(x))>>63
		t[numCounts] += int64(m<<1&low) ^ sign - sign
		t[numCounts+1] += int64(m>>31) ^ sign - sign
	case math.Signbit(x):
		t[negZeros]++
	}
}

// A table adds many numbers faster: to one entry for each of the 4096 signs and exponents (the large superaccumulator of
// Neal 2015). In lo are the sums of the mantissas' low 32 bits, in hi those of the high 20 bits, and in hi/2^40 is how many there are.
type table [4096]struct{ lo, hi uint64 }

const (
	tableFrom = 4096    // numbers that are worth the time to go through a table
	tableTo   = 1 << 20 // numbers that an entry has room for
)

var tables = sync.Pool{New: func() any { return new(table) }}

// addMany adds at most tableTo numbers.
func addMany[T float32 | float64](t *total, xs []T) {
	all := tables.Get().(*table)
	for _, x := range xs {
		b := math.Float64bits(float64(x))
		p := &all[b>>52]
		p.lo += b & low
		p.hi += b>>32&(1<<20-1) | 1<<40
	}
	for i, p := range all {
		if p.hi == 0 {
			continue
		}
		n, hi, sign := p.hi>>40, p.hi&(1<<40-1), -int64(i>>11)
		e := uint64(i) & 0x7ff
		switch {
		case e == 0x7ff && (p.lo != 0 || hi != 0):
			t[nans]++
		case e == 0x7ff && sign == 0:
			t[infs] += int64(n)
		case e == 0x7ff:
			t[negInfs] += int64(n)
		case e == 0 && p.lo == 0 && hi == 0:
			t[negZeros] -= sign * int64(n)
		case e == 0: // subnormals, and zeros perhaps
			t.addScaled(p.lo, hi, 1, sign)
		default:
			t.addScaled(p.lo, hi+n<<20, e, sign) // a normal mantissa has one bit more
		}
		all[i].lo, all[i].hi = 0, 0
	}
	tables.Put(all)
}

// addScaled adds (lo + hi·2^32)·2^(e-1075), where lo is below 2^52 and hi below 2^42, or subtracts it if sign is -1.
func (t *total) addScaled(lo, hi, e uint64, sign int64) {
	hi += lo >> 32
	limbs := (*[4]int64)(t[numCounts+e/32:])
	for i, part := range [3]uint64{lo & low, hi & low, hi >> 32} {
		part <<= e % 32
		limbs[i] += int64(part&low) ^ sign - sign
		limbs[i+1] += int64(part>>32) ^ sign - sign
	}
}

// addProducts adds the products of at most burst pairs.
func addProducts[T float32 | float64](t *total, xs, ys []T) {
	ys = ys[:len(xs)]
	for i, x := range xs {
		x, y := float64(x), float64(ys[i])
		if x-x != 0 || y-y != 0 || x == 0 || y == 0 {
			t.odd(x * y) // a NaN, an infinity or a zero
			continue
		}
		mx, ex := split(x)
		my, ey := split(y)
		hi, lo := bits.Mul64(mx, my)
		at, shift := (ex+ey)/32, (ex+ey)%32
		top := hi >> (64 - shift)
		hi, lo = hi<<shift|lo>>(64-shift), lo<<shift
		sign := int64(math.Float64bits(x)^math.Float64bits(y)) >> 63
		limbs := (*[4]int64)(t[numCounts+at:])
		limbs[0] += int64(lo&low) ^ sign - sign
		limbs[1] += int64(lo>>32) ^ sign - sign
		limbs[2] += int64(hi&low) ^ sign - sign
		limbs[3] += int64(hi>>32|top<<32) ^ sign - sign
	}
}

// split returns m and e of |x| = m·2^(e-1075), where x is finite.
func split(x float64) (m, e uint64) {
	b := math.Float64bits(x)
	m, e = b&(1<<52-1), b>>52&0x7ff
	if e == 0 {
		return m, 1 // subnormal
	}
	return m | 1<<52, e
}

// Sum returns the sum of the numbers of all ranks, on every rank.
//
// Collective: all ranks of c call it. They may have different numbers of values.
//
// Errors, deadline: as for [cohort.Allreduce].
func Sum[T float32 | float64](c *cohort.Comm, xs []T) (T, error) {
	t := totals.Get().(*total)
	t[values] = int64(len(xs))
	size, add := burst, add[T]
	if len(xs) >= tableFrom {
		size, add = tableTo, addMany[T]
	}
	for part := range slices.Chunk(xs, size) {
		add(t, part)
		carry(t[numCounts : numCounts+sumLimbs])
	}
	// The lists of ranks that call different functions differ in length.
	limbs := sumLimbs
	if isSingle[T]() {
		limbs++
	}
	if err := t.allreduce(c, limbs); err != nil {
		return 0, err
	}
	return result[T](t, sumLimbs, sumExp), nil
}

// Dot returns the sum of the products x[i]·y[i] of all ranks, on every rank.
//
// Collective: all ranks of c call it. They may have different numbers of pairs.
//
// Buffers: x and y are equally long. They may be the same slice.
//
// Errors, deadline: as for [cohort.Allreduce]; [cohort.ErrCount] for a wrong length.
func Dot[T float32 | float64](c *cohort.Comm, x, y []T) (T, error) {
	t := totals.Get().(*total)
	lengths := [2]int{len(x), len(y)}
	if len(x) != len(y) {
		t[refusals] = 1
		x, y = nil, nil
	}
	t[values] = int64(len(x))
	for len(x) > 0 {
		n := min(burst, len(x))
		addProducts(t, x[:n], y[:n])
		carry(t[numCounts : numCounts+dotLimbs])
		x, y = x[n:], y[n:]
	}
	limbs := dotLimbs
	if isSingle[T]() {
		limbs++
	}
	if err := t.allreduce(c, limbs); err != nil {
		return 0, err
	}
	if t[refusals] > 0 {
		return 0, disagree(c, "exact.dot", [2]string{"x", "y"}, lengths)
	}
	return result[T](t, dotLimbs, dotExp), nil
}

// allreduce adds the totals of all ranks. After an error t may still be in use.
func (t *total) allreduce(c *cohort.Comm, limbs int) error {
	list := t[:numCounts+limbs]
	return cohort.Allreduce(c, list, list, cohort.Sum)
}

// result rounds a total and gives its memory back.
func result[T float32 | float64](t *total, limbs, exp int) (x T) {
	switch {
	case t[nans] > 0 || t[infs] > 0 && t[negInfs] > 0:
		x = T(math.NaN())
	case t[infs] > 0:
		x = T(math.Inf(1))
	case t[negInfs] > 0:
		x = T(math.Inf(-1))
	case t[values] > 0 && t[negZeros] == t[values]:
		x = T(math.Copysign(0, -1))
	default:
		x = number[T](formatOf[T]().round(t[numCounts:numCounts+limbs], exp))
	}
	*t = total{}
	totals.Put(t)
	return x
}
