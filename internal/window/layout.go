package window

import "math"

// Layout describes where the parts of a window are. The memory begins with a head for every part.
type Layout struct {
	offsets, sizes []int // of the parts, in bytes
	Total          int
}

// Apart lays out one part for every rank. No two parts share a page, so each part is placed
// near the rank that touches it first. Apart returns false if the sum overflows an int.
func Apart(sizes []int, page int) (l Layout, ok bool) {
	l = Layout{offsets: make([]int, len(sizes)), sizes: sizes}
	at := roundUp(len(sizes)*headSize, page)
	for i, n := range sizes {
		if n < 0 || n > math.MaxInt-page-at {
			return l, false
		}
		l.offsets[i] = at
		at = roundUp(at+n, page)
	}
	l.Total = at
	return l, true
}

// First returns the memory that a rank touches first: its part, and on rank 0 the heads.
func (l *Layout) First(rank int, mem []byte) []byte {
	lo := l.offsets[rank]
	hi := lo + l.sizes[rank]
	if rank == 0 {
		lo = 0
	}
	return mem[lo:hi]
}

// Parts returns the parts in the memory.
func (l *Layout) Parts(mem []byte) []Part {
	all := make([]Part, len(l.sizes))
	for r := range all {
		all[r] = newPart(&heads(mem[r*headSize : (r+1)*headSize])[0], mem[l.offsets[r]:], l.sizes[r])
	}
	return all
}

func roundUp(n, page int) int { return (n + page - 1) / page * page }
