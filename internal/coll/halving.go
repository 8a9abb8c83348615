package coll

// Recursive halving: the phase that the long reductions in tree order share.

// evenly returns the byte offsets of the parts that the vector is split into.
func (b *builder) evenly(parts int) func(i int) int {
	return func(i int) int { return split(b.c.Count, parts, i) * b.size }
}

// halve combines the values of f.p virtual ranks so that each ends up with the
// result of one part of the vector, and returns which: [lo, lo+1). In step k,
// with distance 2^k, v and v^2^k exchange halves of what they have, the lower
// one keeping the lower half: the operands meet in tree order.
//
// Rabenseifner 2004; the distances double so that the order is that of
// recursive doubling.
func (b *builder) halve(f fold, w *vector, v int, part func(i int) int) (lo, hi int) {
	lo, hi = 0, f.p
	for d := 1; d < f.p; d *= 2 {
		mid := (lo + hi) / 2
		lower := v&d == 0
		give := w.cur.at(part(mid), part(hi)-part(mid))
		keep := mid
		if lower {
			hi = mid
			keep = lo
		} else {
			give = w.cur.at(part(lo), part(mid)-part(lo))
			lo = mid
		}
		r := b.land(w, part(keep), part(hi)-part(keep))
		peer := f.rank(v ^ d)
		b.recv(peer, r)
		b.send(peer, give)
		b.merge(w, part(keep), r, lower)
		b.round()
		w.cur = w.acc
	}
	return lo, hi
}

// sibling returns the parts that are beside [lo, hi) in the tree.
func sibling(lo, hi int, lower bool) (int, int) {
	if lower {
		return hi, 2*hi - lo
	}
	return 2*lo - hi, lo
}
