package window

import (
	"math"
	"math/bits"
)

// Layout describes where the parts of a window are. The memory begins with a lock for
// every part.
type Layout struct {
	Offsets, Sizes []int // of the parts, in bytes
	Total          int
}

// Apart lays out one part for every rank. No two parts share a page, so each part is placed
// near the rank that touches it first. Apart returns false if the sum overflows an int.
func Apart(sizes []int, page int) (l Layout, ok bool) {
	l = Layout{Offsets: make([]int, len(sizes)), Sizes: sizes}
	at, ok := up(len(sizes)*lockSize, page)
	for i, n := range sizes {
		l.Offsets[i] = at
		var end uint64
		if ok {
			var carry uint64
			end, carry = bits.Add64(uint64(at), uint64(n), 0)
			ok = n >= 0 && carry == 0 && end <= math.MaxInt
		}
		if ok {
			at, ok = up(int(end), page)
		}
	}
	l.Total = at
	return l, ok
}

// up rounds n up to a multiple of page.
func up(n, page int) (int, bool) {
	if n > math.MaxInt-page {
		return n, false
	}
	return (n + page - 1) / page * page, true
}
