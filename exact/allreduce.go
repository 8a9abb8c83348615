package exact

import (
	"math"
	"math/bits"
	"slices"

	"github.com/cohort-hpc/cohort"
)

// call is what Allreduce needs besides the rows. An operation that failed may still use it.
type call struct {
	head    []uint64 // what the ranks combine first; present follows it
	present []uint64 // of each block, a bit for each row that any rank has
	limbs   []int64  // of all rows that any rank has, the ranks' sums
	counts  []int    // limbs of each rank
	lengths []int    // elements of each rank
}

// The words of call.head. Those of the first block follow them: two for float64 and one for float32, so that the calls of
// ranks with different types do not match.
const (
	headLen     = iota // elements
	headNotLen         // its complement: if lengths differ, a bit is set in both after the ranks have combined them
	headRefusal        // 1: wrong arguments
	numHeads
)

// segment is how many blocks are added at once.
const segment = 128

// Allreduce stores the sums over all ranks, rounded, in recv. The accumulator keeps its sums: more can be added.
//
// Collective: all ranks of c call it with accumulators of the same length and type. They may have added different
// numbers of slices, or none.
//
// Buffers: recv is as long as the accumulator. After an error its content is unspecified.
//
// Errors, deadline: as for [cohort.Allreduce]; [cohort.ErrCount] for a wrong length.
func (a *Accumulator[T]) Allreduce(c *cohort.Comm, recv []T) error {
	if a = a.orNone(); a.call == nil {
		a.call = new(call)
	}
	err := a.allreduce(c, recv, a.call)
	if err != nil {
		a.call = nil
	}
	return err
}

// 1. A rank carries if the limbs of all ranks together could overflow otherwise.
// 2. The ranks agree on the length, and find out which rows of each block any of them has.
// 3. The blocks are divided among the ranks. A rank receives the sums of the limbs of its blocks.
// 4. It rounds these, and all ranks gather the results.
//
// If there is one block, each rank receives all sums, and rounds them.
func (a *Accumulator[T]) allreduce(c *cohort.Comm, recv []T, call *call) error {
	ranks := c.Size()
	if a.pending*ranks > a.most {
		a.carry()
	}
	if len(recv) == a.n {
		a.makeRows()
	}
	a.findRows(call)
	call.head[headLen], call.head[headNotLen] = uint64(a.n), ^uint64(a.n)
	if len(recv) != a.n {
		call.head[headRefusal] = 1
	}
	head := call.head[:numHeads+a.words()]
	if err := cohort.Allreduce(c, head, head, cohort.Bor); err != nil {
		return err
	}
	if head[headRefusal] > 0 || head[headLen]&head[headNotLen] != 0 {
		return disagree(c, "exact.allreduce", [2]string{"the accumulator", "recv"}, [2]int{a.n, len(recv)})
	}
	switch a.blocks() {
	case 0:
		return nil
	case 1:
		call.limbs = call.limbs[:0]
		a.pack(call, 0)
		err := cohort.Allreduce(c, call.limbs, call.limbs, cohort.Sum)
		if err == nil {
			a.round(call, 0, recv, call.limbs)
		}
		return err
	}
	others := call.present[a.words():]
	if err := cohort.Allreduce(c, others, others, cohort.Bor); err != nil {
		return err
	}
	call.counts, call.lengths = slices.Grow(call.counts[:0], ranks)[:ranks], slices.Grow(call.lengths[:0], ranks)[:ranks]
	for first := 0; first < a.blocks(); first += segment {
		end := min(first+segment, a.blocks())
		call.limbs = call.limbs[:0]
		for r := range ranks {
			before := len(call.limbs)
			from, to := first+(end-first)*r/ranks, first+(end-first)*(r+1)/ranks
			for b := from; b < to; b++ {
				a.pack(call, b)
			}
			call.counts[r] = len(call.limbs) - before
			call.lengths[r] = a.upTo(to) - a.upTo(from)
		}
		if err := cohort.ReduceScatter(c, call.limbs, call.limbs, call.counts, cohort.Sum); err != nil {
			return err
		}
		limbs, me := call.limbs, c.Rank()
		for b := first + (end-first)*me/ranks; b < first+(end-first)*(me+1)/ranks; b++ {
			limbs = a.round(call, b, recv[a.upTo(b):a.upTo(b+1)], limbs)
		}
		part := recv[a.upTo(first):a.upTo(end)]
		if err := cohort.Allgatherv(c, part, part, call.lengths, nil); err != nil {
			return err
		}
	}
	return nil
}

// upTo returns how many elements there are before block b.
func (a *Accumulator[T]) upTo(b int) int { return min(b*blockLen, a.n) }

// words returns how many words of call.present are those of a block.
func (g *grid) words() int { return (g.rows + 63) / 64 }

// findRows stores which rows the blocks have, and makes the head zero.
func (a *Accumulator[T]) findRows(call *call) {
	n := numHeads + max(1, a.blocks())*a.words()
	call.head = slices.Grow(call.head[:0], n)[:n]
	clear(call.head)
	call.present = call.head[numHeads:]
	for b := range a.blocks() {
		for j, r := range a.block(b) {
			if r != nil {
				call.present[b*a.words()+j/64] |= 1 << (j % 64)
			}
		}
	}
}

// eachRow calls do for each row of block b that any rank has.
func (g *grid) eachRow(call *call, b int, do func(j int)) {
	for w, set := range call.present[b*g.words():][:g.words()] {
		for ; set != 0; set &= set - 1 {
			do(w*64 + bits.TrailingZeros64(set))
		}
	}
}

// pack appends the rows of a block.
func (a *Accumulator[T]) pack(call *call, b int) {
	n := a.upTo(b+1) - a.upTo(b)
	block := a.block(b)
	a.eachRow(call, b, func(j int) {
		at := len(call.limbs)
		call.limbs = slices.Grow(call.limbs, n)[:at+n]
		to := call.limbs[at:]
		if r := block[j]; r != nil {
			copy(to, r[:])
		} else {
			clear(to)
		}
		if j == a.limbs+negatives {
			for i, v := range to {
				to[i] = a.adds - v // 0 on all ranks if all numbers are -0
			}
		}
	})
}

// round rounds the sums of a block. The rows begin in packed; round returns what follows them.
func (a *Accumulator[T]) round(call *call, b int, recv []T, packed []int64) []int64 {
	var rows [67][]int64
	var specials, others []int64
	least, end := len(rows), 0
	a.eachRow(call, b, func(j int) {
		r := packed[:len(recv)]
		packed = packed[len(recv):]
		switch j {
		case a.limbs + special:
			specials = r
		case a.limbs + negatives:
			others = r
		default:
			rows[j] = r
			least, end = min(least, j), j+1
		}
	})
	if end == 0 {
		clear(recv)
	} else {
		a.roundRows(rows[least:end], a.exp+32*least, recv)
	}
	for i, v := range others {
		if v == 0 {
			recv[i] = T(math.Copysign(0, -1))
		}
	}
	for i, v := range specials {
		switch {
		case v >= oneNaN || v&field != 0 && v >= oneNegInf:
			recv[i] = T(math.NaN())
		case v >= oneNegInf:
			recv[i] = T(math.Inf(-1))
		case v > 0:
			recv[i] = T(math.Inf(1))
		}
	}
	return packed
}

// roundRows rounds sums whose limbs are in rows, of which those without any are nil.
func (a *Accumulator[T]) roundRows(rows [][]int64, exp int, recv []T) {
	f := a.format
	if len(rows) > 3 {
		var limbs [67]int64
		for i := range recv {
			for j, r := range rows {
				limbs[j] = 0
				if r != nil {
					limbs[j] = r[i]
				}
			}
			recv[i] = number[T](f.round(limbs[:len(rows)], exp))
		}
		return
	}
	// Most sums have 128 bits. If one has 64, the processor rounds it. Multiplying by a power of 2 does not round if the
	// result is a normal number.
	var zeros row
	three := [3][]int64{zeros[:], zeros[:], zeros[:]}
	copy(three[:], rows)
	if three[1] == nil {
		three[1] = zeros[:]
	}
	r0, r1, r2 := three[0][:len(recv)], three[1][:len(recv)], three[2][:len(recv)]
	scale, normal := T(math.Ldexp(1, exp)), exp >= f.least+f.mantissa && exp+63 < -f.least-f.mantissa
	for i := range recv {
		lo, c := bits.Add64(uint64(r0[i]), uint64(r1[i])<<32, 0)
		hi, top := r0[i]>>63+r1[i]>>32+int64(c), r2[i]
		switch {
		case top>>62 != top>>63: // more than 128 bits
			limbs := [3]int64{r0[i], r1[i], top}
			recv[i] = number[T](f.round(limbs[:], exp))
		case normal && hi+top == int64(lo)>>63:
			recv[i] = T(int64(lo)) * scale
		default:
			recv[i] = number[T](f.round128(hi+top, lo, exp))
		}
	}
}
