package coll

func allreduceVector(b *builder) vector {
	return vector{cur: b.elems(b.in(), 0, b.c.Count), acc: b.elems(Recv, 0, b.c.Count)}
}

// allreduceDoubling: in step k, v and v^2^k exchange and combine what they
// have.
//
// Thakur, Rabenseifner, Gropp 2005.
func allreduceDoubling(b *builder) {
	w := allreduceVector(b)
	f := newFold(b.n, -1)
	v, in := b.foldIn(f, &w)
	if in {
		for d := 1; d < f.p; d *= 2 {
			peer := f.rank(v ^ d)
			r := b.land(&w, 0, w.cur.N)
			b.recv(peer, r)
			b.send(peer, w.cur)
			b.merge(&w, 0, r, v&d == 0)
			b.round()
			w.cur = w.acc
		}
	}
	b.foldOut(f, in, w.acc)
}

// allreduceRabenseifner scatters the reduction by recursive halving and
// collects the parts again, going the same way back.
//
// Rabenseifner: Optimization of collective reduction operations, 2004.
func allreduceRabenseifner(b *builder) {
	w := allreduceVector(b)
	f := newFold(b.n, -1)
	v, in := b.foldIn(f, &w)
	if in {
		part := b.evenly(f.p)
		lo, hi := b.halve(f, &w, v, part)
		for d := f.p / 2; d > 0; d /= 2 {
			sib, end := sibling(lo, hi, v&d == 0)
			peer := f.rank(v ^ d)
			b.recv(peer, w.acc.at(part(sib), part(end)-part(sib)))
			b.send(peer, w.acc.at(part(lo), part(hi)-part(lo)))
			b.round()
			lo, hi = min(lo, sib), max(hi, end)
		}
	}
	b.foldOut(f, in, w.acc)
}

// allreduceRing scatters the reduction around the ring and passes the results
// around it again.
//
// Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of
// workstations, 2009.
func allreduceRing(b *builder) {
	b.ringScatter(b.chunk(Recv, b.rank))
	b.ringGather(func(i int) Region { return b.chunk(Recv, i) })
}
