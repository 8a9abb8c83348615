package coll

import "math/bits"

// Splits of ranks and vectors that the algorithms have in common.

// split returns the bounds of part i when count elements are divided over n
// parts as evenly as can be: the first count mod n parts have one more. The
// first parts' upper bounds are the next parts' lower ones; i may be n.
func split(count, n, i int) int {
	q, r := count/n, count%n
	return i*q + min(i, r)
}

// floorPow2 returns the largest power of two that is not above n, which is at
// least 1.
func floorPow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

func isPow2(n int) bool { return n&(n-1) == 0 }

// mod returns a modulo n for a not below -n.
func mod(a, n int) int {
	if a < 0 {
		return a + n
	}
	return a % n
}

// subtree returns how many ranks the binomial tree over n ranks has at and
// below v, v+1 being the first of those below: the ranks are v to v+subtree-1.
func subtree(v, n int) int {
	if v == 0 {
		return n
	}
	return min(v&-v, n-v)
}

// beside returns the ranks k above and k below r, for k from 1 to n/2: one rank
// if they are the same. The relation is symmetric. So for every k, all ranks
// exchange with their pairs at once, each sending up first, and after the last k
// every two ranks have met.
func beside(r, k, n int) (pair [2]int, m int) {
	pair = [2]int{mod(r+k, n), mod(r-k, n)}
	if pair[0] == pair[1] {
		return pair, 1
	}
	return pair, 2
}

// fold maps the ranks to a power of two of virtual ranks. Of each pair (2i,
// 2i+1) of the first 2 rem ranks only one takes part, with the values of both
// combined; rank r of the others is virtual rank r-rem.
type fold struct {
	p, rem int
	keep   int // a rank that takes part in any case; -1 for none
}

func newFold(n, keep int) fold {
	p := floorPow2(n)
	return fold{p, n - p, keep}
}

// rank returns the rank behind virtual rank v.
func (f fold) rank(v int) int {
	if v >= f.rem {
		return v + f.rem
	}
	if f.keep == 2*v+1 {
		return f.keep
	}
	return 2 * v
}

// virtual returns the virtual rank that r's value goes into and whether it is r
// that takes part.
func (f fold) virtual(r int) (v int, in bool) {
	if r >= 2*f.rem {
		return r - f.rem, true
	}
	v = r / 2
	return v, f.rank(v) == r
}

// paired reports whether r is one of the ranks that are combined in pairs.
func (f fold) paired(r int) bool { return r < 2*f.rem }
