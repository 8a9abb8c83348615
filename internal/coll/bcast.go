package coll

// bcaster has what the broadcasts share: ranks are numbered from the root on,
// v and w are such numbers.
type bcaster struct {
	*builder
	v int
}

func newBcaster(b *builder) bcaster { return bcaster{b, mod(b.rank-b.c.Root, b.n)} }

// real returns the rank with number v.
func (b bcaster) real(v int) int { return mod(v+b.c.Root, b.n) }

// bytes returns the region of bytes lo to hi-1 of the vector. Nothing is
// computed with it, so that an element may be cut in two.
func (b bcaster) bytes(lo, hi int) Region { return b.vec.at(lo, hi-lo) }

// length returns the bytes of the vector.
func (b bcaster) length() int { return b.vec.N }

// parts returns parts i to j-1 of the vector split over the ranks, in whole
// cache lines but for the last.
func (b bcaster) parts(i, j int) Region {
	const line = 64
	all := b.length()
	lines := (all + line - 1) / line
	return b.bytes(min(all, split(lines, b.n, i)*line), min(all, split(lines, b.n, j)*line))
}

// tree sends down the binomial tree, from each rank to each of its children,
// what part says for the child's subtree [lo, hi).
func (b bcaster) tree(part func(lo, hi int) Region) {
	if b.v != 0 {
		b.recv(b.real(b.v&(b.v-1)), part(b.v, b.v+subtree(b.v, b.n)))
		b.round()
	}
	// The largest subtree first, it has the longest way.
	for d := floorPow2(b.n); d > 0; d /= 2 {
		if w := b.v + d; w < b.n && (b.v == 0 || d < b.v&-b.v) {
			b.send(b.real(w), part(w, w+subtree(w, b.n)))
		}
	}
	b.round()
}

// bcastBinomial: who has the vector sends it on, largest subtree first.
func bcastBinomial(bb *builder) {
	b := newBcaster(bb)
	all := b.bytes(0, b.length())
	b.tree(func(int, int) Region { return all })
}

// held reports whether rank w has part i after the scatter.
func (b bcaster) held(w, i int) bool { return w <= i && i < w+subtree(w, b.n) }

// bcastScatterDoubling scatters the vector down the binomial tree and collects
// the parts again by recursive doubling; the number of ranks is a power of two.
//
// Barnett, Gupta, Payne, Shuler, van de Geijn, Watts: Interprocessor collective
// communication library (InterCom), 1994; Thakur, Rabenseifner, Gropp 2005.
func bcastScatterDoubling(bb *builder) {
	b := newBcaster(bb)
	b.tree(b.parts)
	for d := 1; d < b.n; d *= 2 {
		w := b.v ^ d
		mine, theirs := b.v&^(d-1), w&^(d-1)
		// A subtree's first rank has all of it already.
		if b.v&(2*d-1) != 0 {
			b.recv(b.real(w), b.parts(theirs, theirs+d))
		}
		if w&(2*d-1) != 0 {
			b.send(b.real(w), b.parts(mine, mine+d))
		}
		b.round()
	}
}

// bcastScatterRing scatters the vector down the binomial tree, after which the
// parts go around a ring of the ranks; what a rank holds from the scatter is
// not sent to it again.
//
// Papers as for bcastScatterDoubling.
func bcastScatterRing(bb *builder) {
	b := newBcaster(bb)
	b.tree(b.parts)
	left, right := mod(b.v-1, b.n), mod(b.v+1, b.n)
	for t := range b.n - 1 {
		out, in := mod(b.v-t, b.n), mod(b.v-t-1, b.n)
		if !b.held(b.v, in) {
			b.recv(b.real(left), b.parts(in, in+1))
		}
		if !b.held(right, out) {
			b.send(b.real(right), b.parts(out, out+1))
		}
		b.round()
	}
}

// bcastChain passes the vector from rank to rank in segments: while a rank
// receives one it sends the one before.
//
// Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel, Dongarra: Performance
// analysis of MPI collective operations, 2005.
func bcastChain(bb *builder) {
	b := newBcaster(bb)
	all, step := b.length(), b.lim.segment
	for lo := 0; lo < all+step; lo += step {
		if b.v > 0 && lo < all {
			b.recv(b.real(b.v-1), b.bytes(lo, min(lo+step, all)))
		}
		if b.v < b.n-1 && lo >= step {
			b.send(b.real(b.v+1), b.bytes(lo-step, min(lo, all)))
		}
		b.round()
	}
}
