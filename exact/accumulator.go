package exact

import (
	"math"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
)

// An Accumulator holds n sums without rounding errors. [Accumulator.Add] adds a slice to them, element by element.
//
// It needs 8 bytes for each element and each factor of 2^32 between the magnitudes of the numbers: for most data, 8 to 24
// bytes for float32 and 16 to 32 for float64.
//
// A nil or zero Accumulator holds no sums. An Accumulator must not be used by several goroutines at once.
type Accumulator[T float32 | float64] struct {
	grid
	n       int
	adds    int64  // slices added
	pending int    // slices added since the last carry
	rows    []*row // of all blocks, grid.rows for each, in which nil is all zero; nil until there is something to add
	free    []*row // for rows to come
	call    *call  // memory of Allreduce
}

// The elements are in blocks. The limbs of a block with the same number are a row, which is allocated when the first
// number needs it.
const (
	blockShift = 10
	blockLen   = 1 << blockShift
)

type row [blockLen]int64 // one limb of each element

// grid says how an Accumulator stores the sums of a type.
type grid struct {
	*format
	limbs int // rows of limbs of a block; two others follow
	rows  int // all rows of a block
	exp   int // limb i counts units of 2^(32i+exp)
	most  int // how many slices can be added between carries
}

// offset is chosen so that numbers from 2^-23 to 2^9 share one limb.
const offset = 24

// A float32 is added to one limb and is less than 2^55 there. A float64 is added to two, to one less than 2^32 and to the
// other less than 2^52.
//
// Invariant: no limb but the last exceeds 2^31 + most times that, which is below 2^63-2^32. The last one begins at 2^114 or 2^1013,
// so that the sum of 2^48 numbers does not exceed it.
var (
	singleGrid = grid{&single, 10, 12, -150 - offset, 255}
	doubleGrid = grid{&double, 67, 69, -1075 - offset, 2046}
)

// The rows after the limbs.
const (
	special   = iota // fields of 20 bits that count +Inf, -Inf and NaN
	negatives        // counts -0
)

const (
	oneInf    = 1
	oneNegInf = 1 << 20
	oneNaN    = 1 << 40
	field     = 1<<20 - 1
)

// New returns an accumulator of n sums, of no numbers yet. If n is negative, Add and Allreduce return [cohort.ErrCount].
func New[T float32 | float64](n int) *Accumulator[T] {
	a := &Accumulator[T]{n: n, grid: doubleGrid}
	if isSingle[T]() {
		a.grid = singleGrid
	}
	return a
}

// orNone returns a, or an accumulator of no sums if New has not made a.
func (a *Accumulator[T]) orNone() *Accumulator[T] {
	if a == nil || a.format == nil {
		return New[T](0)
	}
	return a
}

// Len returns the number of sums.
func (a *Accumulator[T]) Len() int { return a.orNone().n }

// Reset makes all sums those of no numbers. It keeps the memory for the next ones.
func (a *Accumulator[T]) Reset() {
	a = a.orNone()
	for i, r := range a.rows {
		if r != nil {
			a.free = append(a.free, r)
			a.rows[i] = nil
		}
	}
	a.adds, a.pending = 0, 0
}

func (a *Accumulator[T]) blocks() int { return len(a.rows) / a.grid.rows }

// block returns the rows of a block.
func (a *Accumulator[T]) block(b int) []*row { return a.rows[b*a.grid.rows:][:a.grid.rows] }

// need returns a row of a block, which it allocates if need be.
func (a *Accumulator[T]) need(p **row) *row {
	if *p != nil {
		return *p
	}
	if n := len(a.free); n > 0 {
		*p = a.free[n-1]
		a.free = a.free[:n-1]
		**p = row{}
	} else {
		*p = new(row)
	}
	return *p
}

// Add adds xs[i] to sum i, for all i.
//
// Not collective. It keeps no reference to xs.
//
// Errors: [cohort.ErrCount] if the length of xs is not that of the accumulator, which then does not change.
func (a *Accumulator[T]) Add(xs []T) error {
	if a = a.orNone(); len(xs) != a.n {
		return wrongCount("exact.add", len(xs), a.n)
	}
	a.makeRoom()
	switch xs := any(xs).(type) {
	case []float32:
		for b := range a.blocks() {
			a.addSingles(a.block(b), xs[b*blockLen:min(b*blockLen+blockLen, len(xs))])
		}
	case []float64:
		for b := range a.blocks() {
			a.addDoubles(a.block(b), xs[b*blockLen:min(b*blockLen+blockLen, len(xs))])
		}
	}
	a.adds++
	return nil
}

func wrongCount(op string, got, want int) error {
	return &cohort.OpError{Op: op, Rank: cohort.Undefined, Peer: cohort.Undefined, Tag: cohort.Undefined,
		Err: backend.Faultf(cohort.ErrCount, "got %d elements, want %d", got, want)}
}

// makeRows makes the rows, if there are none. There is a slice of a.n elements.
func (a *Accumulator[T]) makeRows() {
	if a.rows == nil {
		a.rows = make([]*row, (a.n+blockLen-1)/blockLen*a.grid.rows)
	}
}

// makeRoom makes room for one number in every limb.
func (a *Accumulator[T]) makeRoom() {
	a.makeRows()
	if a.pending == a.most {
		a.carry()
	}
	a.pending++
}

// addSingles adds numbers to a block.
func (a *Accumulator[T]) addSingles(block []*row, xs []float32) {
	limbs := (*[10]*row)(block)
	for i, x := range xs {
		b := math.Float32bits(x) &^ (1 << 31)
		if b-1 >= 0xff<<23-1 {
			a.addOdd(block, i, float64(x))
			continue
		}
		at := (b + offset<<23) >> 28 // the exponent / 32
		r := limbs[at]
		if r == nil {
			r = a.need(&limbs[at])
		}
		r[i&(blockLen-1)] += int64(float64(x) * units[at]) // exact
	}
}

// units are how many units of each limb 1 is.
var units = func() (u [10]float64) {
	for i := range u {
		u[i] = math.Ldexp(1, -singleGrid.exp-32*i)
	}
	return u
}()

// addDoubles adds numbers to a block.
func (a *Accumulator[T]) addDoubles(block []*row, xs []float64) {
	limbs := (*[67]*row)(block)
	for i, x := range xs {
		b := math.Float64bits(x)
		e := b >> 52 & 0x7ff
		if e == 0 || e == 0x7ff {
			a.addOdd(block, i, x)
			continue
		}
		at, shift := (e+offset)/32, (e+offset)%32
		r0, r1 := limbs[at], limbs[at+1]
		if r0 == nil {
			r0 = a.need(&limbs[at])
		}
		if r1 == nil {
			r1 = a.need(&limbs[at+1])
		}
		m, sign := b&(1<<52-1)|1<<52, int64(b)>>63
		r0[i&(blockLen-1)] += int64(m<<shift&low) ^ sign - sign
		r1[i&(blockLen-1)] += int64(m>>(32-shift)) ^ sign - sign
	}
}

// addOdd adds a number to element i of a block that is not a normal float64.
func (a *Accumulator[T]) addOdd(block []*row, i int, x float64) {
	switch {
	case x != x:
		a.need(&block[a.limbs+special])[i] += oneNaN
	case x > math.MaxFloat64:
		a.need(&block[a.limbs+special])[i] += oneInf
	case x < -math.MaxFloat64:
		a.need(&block[a.limbs+special])[i] += oneNegInf
	case x != 0: // subnormal
		m, e := split(x)
		sign := int64(math.Float64bits(x)) >> 63
		a.need(&block[0])[i] += int64(m<<(e+offset)&low) ^ sign - sign
		a.need(&block[1])[i] += int64(m>>(32-e-offset)) ^ sign - sign
	case math.Signbit(x):
		a.need(&block[a.limbs+negatives])[i]++
	}
}

// Merge adds all numbers that were added to o. It may carry in o, which keeps its sums.
//
// Not collective.
//
// Errors: [cohort.ErrCount] if o has another length. Then a does not change.
func (a *Accumulator[T]) Merge(o *Accumulator[T]) error {
	if a, o = a.orNone(), o.orNone(); o.n != a.n {
		return wrongCount("exact.merge", o.n, a.n)
	}
	if a.adds += o.adds; o.rows == nil {
		return nil
	}
	o.carry() // its limbs are less than those of one number now, but for the last ones
	a.makeRoom()
	for i, r := range o.rows {
		if r == nil {
			continue
		}
		sums := a.need(&a.rows[i])
		for j, v := range r {
			sums[j] += v
		}
	}
	return nil
}

// carry is the function carry for all elements. It also makes counts of special values 1.
func (a *Accumulator[T]) carry() {
	a.pending = 0
	for b := range a.blocks() {
		block := a.block(b)
		for j := range a.limbs - 1 {
			if block[j] != nil {
				a.carryRow(block[j], &block[j+1])
			}
		}
		if r := block[a.limbs+special]; r != nil {
			for i, v := range r {
				r[i] = min(v&field, oneInf) | min(v&(field*oneNegInf), oneNegInf) | min(v&(field*oneNaN), oneNaN)
			}
		}
	}
}

// carryRow carries from a row of limbs to the next one, which it allocates if need be.
func (a *Accumulator[T]) carryRow(r *row, next **row) {
	up := *next
	for i, v := range r {
		d := int64(int32(v))
		if d == v {
			continue
		}
		if up == nil {
			up = a.need(next)
		}
		r[i] = d
		up[i] += (v - d) >> 32
	}
}
