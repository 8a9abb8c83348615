package coll

// reduceVector returns the value of this rank in a reduction to the root, where
// the result goes to Recv; the others have no buffer for it.
func reduceVector(b *builder) vector {
	all := b.c.Count
	w := vector{cur: b.elems(b.in(), 0, all)}
	if b.rank == b.c.Root {
		w.acc = b.elems(Recv, 0, all)
	}
	return w
}

// accumulate gives w scratch to accumulate in where it has no buffer.
func (b *builder) accumulate(w *vector) {
	if w.acc.N < w.cur.N {
		w.acc = b.temp(w.cur.N)
	}
}

// reduceBinomial: values are combined up the tree of the canonical order. Of
// two neighboring subtrees the one with the root in it receives, or, with
// ranks numbered relative to the root by exclusive or, the lower one.
func reduceBinomial(b *builder) {
	w := reduceVector(b)
	b.unite(0, b.n, &w, b.c.Root)
}

// unite combines the values of ranks lo to hi-1, a part of the tree, and returns the one of
// rank to, on which the result is; on the others, w is what they have sent.
func (b *builder) unite(lo, hi int, w *vector, to int) {
	if hi-lo == 1 {
		return
	}
	f := newFold(b.n, to)
	v, in := b.foldIn(f, w)
	if !in {
		return
	}
	root, _ := f.virtual(to)
	begin, _ := f.virtual(lo)
	end, _ := f.virtual(hi - 1)
	for d := 1; d < end-begin+1; d *= 2 {
		peer := f.rank(v ^ d)
		if (v^root)&d != 0 {
			b.send(peer, w.cur)
			b.round()
			return
		}
		b.accumulate(w)
		r := b.land(w, 0, w.cur.N)
		b.recv(peer, r)
		b.merge(w, 0, r, v&d == 0)
		b.round()
		w.cur = w.acc
	}
}

// reduceRabenseifner scatters the reduction by recursive halving and gathers
// the parts on the root, going the same way back.
//
// Rabenseifner: Optimization of collective reduction operations, 2004.
func reduceRabenseifner(b *builder) {
	w := reduceVector(b)
	f := newFold(b.n, b.c.Root)
	if _, in := f.virtual(b.rank); in {
		b.accumulate(&w)
	}
	v, in := b.foldIn(f, &w)
	if !in {
		return
	}
	root, _ := f.virtual(b.c.Root)
	lo, hi := b.halve(f, &w, v, b.evenly(f.p))
	for d := f.p / 2; d > 0; d /= 2 {
		peer := f.rank(v ^ d)
		part := b.evenly(f.p)
		if (v^root)&d != 0 {
			b.send(peer, w.acc.at(part(lo), part(hi)-part(lo)))
			b.round()
			return
		}
		sib, end := sibling(lo, hi, v&d == 0)
		b.recv(peer, w.acc.at(part(sib), part(end)-part(sib)))
		b.round()
		lo, hi = min(lo, sib), max(hi, end)
	}
}

// reduceRing scatters the reduction around the ring and sends the chunks to the
// root.
func reduceRing(b *builder) {
	own := b.chunk(Recv, b.rank)
	if b.rank != b.c.Root {
		own = b.temp(own.N)
	}
	b.ringScatter(own)
	if b.rank != b.c.Root {
		b.send(b.c.Root, own)
		b.round()
		return
	}
	for i := range b.n {
		if i != b.rank {
			b.recv(i, b.chunk(Recv, i))
		}
	}
	b.round()
}
