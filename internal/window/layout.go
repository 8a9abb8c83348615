package window

import "math"

// Layout describes where the parts of a window are. The memory begins with a lock for every part.
type Layout struct {
	Offsets, Sizes []int // of the parts, in bytes
	Total          int
}

// Apart lays out one part for every rank. No two parts share a page, so each part is placed
// near the rank that touches it first. Apart returns false if the sum overflows an int.
func Apart(sizes []int, page int) (l Layout, ok bool) {
	l = Layout{Offsets: make([]int, len(sizes)), Sizes: sizes}
	at := roundUp(len(sizes)*lockSize, page)
	for i, n := range sizes {
		if n < 0 || n > math.MaxInt-page-at {
			return l, false
		}
		l.Offsets[i] = at
		at = roundUp(at+n, page)
	}
	l.Total = at
	return l, true
}

func roundUp(n, page int) int { return (n + page - 1) / page * page }
