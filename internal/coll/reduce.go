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
	f := newFold(b.n, b.c.Root)
	if _, in := f.virtual(b.rank); in && (f.paired(b.rank) || receivesFirst(f, b.rank, b.c.Root)) {
		b.accumulate(&w)
	}
	v, in := b.foldIn(f, &w)
	if !in {
		return
	}
	root, _ := f.virtual(b.c.Root)
	for d := 1; d < f.p; d *= 2 {
		peer := f.rank(v ^ d)
		if (v^root)&d != 0 {
			b.send(peer, w.cur)
			b.round()
			return
		}
		r := b.land(&w, 0, w.cur.N)
		b.recv(peer, r)
		b.merge(&w, 0, r, v&d == 0)
		b.round()
		w.cur = w.acc
	}
}

// receivesFirst reports whether rank's part in the tree begins with a receive,
// and not with a send that ends it.
func receivesFirst(f fold, rank, root int) bool {
	v, _ := f.virtual(rank)
	r, _ := f.virtual(root)
	return f.p > 1 && (v^r)&1 == 0
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
	chunk := func(s Space, i int) Region {
		return b.elems(s, split(b.c.Count, b.n, i), split(b.c.Count, b.n, i+1))
	}
	own := chunk(Recv, b.rank)
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
			b.recv(i, chunk(Recv, i))
		}
	}
	b.round()
}
