package coll

// allgatherDoubling: in step k, r and r^2^k exchange all blocks they have; the
// number of ranks is a power of two.
//
// Thakur, Rabenseifner, Gropp 2005, section 4.1.
func allgatherDoubling(b *builder) {
	if !b.c.InPlace {
		b.copy(b.blocks(Recv, b.rank, b.rank+1), b.blocks(Send, 0, 1))
		b.round()
	}
	for d := 1; d < b.n; d *= 2 {
		peer := b.rank ^ d
		mine, theirs := b.rank&^(d-1), peer&^(d-1)
		b.recv(peer, b.blocks(Recv, theirs, theirs+d))
		b.send(peer, b.blocks(Recv, mine, mine+d))
		b.round()
	}
}

// allgatherRing passes every block around the ring.
//
// Thakur, Rabenseifner, Gropp 2005, section 4.1.
func allgatherRing(b *builder) {
	if !b.c.InPlace {
		b.copy(b.blocks(Recv, b.rank, b.rank+1), b.blocks(Send, 0, 1))
		b.round()
	}
	b.ringGather(func(i int) Region { return b.blocks(Recv, i, i+1) })
}

// allgatherBruck: each rank collects the blocks from its own on. In step k it
// has 2^k of them, sends them 2^k ranks down and receives as many from 2^k up.
//
// Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all
// communications in multiport message-passing systems, 1997.
func allgatherBruck(b *builder) {
	blk := b.c.Count * b.size
	own := b.blocks(Send, 0, 1)
	if b.c.InPlace {
		own = b.blocks(Recv, b.rank, b.rank+1)
	}
	t := b.bruck(own, func(i int) int { return i * blk })
	// The blocks to the last rank's, then those from rank 0's.
	head := (b.n - b.rank) * blk
	b.copy(b.blocks(Recv, b.rank, b.n), t.at(0, head))
	b.copy(b.blocks(Recv, 0, b.rank), t.at(head, t.N-head))
}

// bruck collects the ranks' blocks in scratch, this rank's first; off(i) is
// where the i-th of them begins, off(n) where the last ends.
func (b *builder) bruck(own Region, off func(i int) int) Region {
	t := b.temp(off(b.n))
	b.copy(t.at(0, own.N), own)
	b.round()
	for d := 1; d < b.n; d *= 2 {
		m := min(d, b.n-d)
		b.recv(mod(b.rank+d, b.n), t.at(off(d), off(d+m)-off(d)))
		b.send(mod(b.rank-d, b.n), t.at(0, off(m)))
		b.round()
	}
	return t
}

// parts returns the regions of the blocks of an Allgatherv.
func (b *builder) parts() func(i int) Region {
	return func(i int) Region {
		d := b.c.RecvDispls[i]
		return b.elems(Recv, d, d+b.c.RecvCounts[i])
	}
}

// allgathervBruck is allgatherBruck for blocks of different lengths. Every rank has all
// lengths.
func allgathervBruck(b *builder) {
	part := b.parts()
	own := part(b.rank)
	if !b.c.InPlace {
		own = b.elems(Send, 0, b.c.RecvCounts[b.rank])
	}
	offs := make([]int, b.n+1)
	for i := range b.n {
		offs[i+1] = offs[i] + b.c.RecvCounts[(b.rank+i)%b.n]*b.size
	}
	t := b.bruck(own, func(i int) int { return offs[i] })
	for i := range b.n {
		if r := (b.rank + i) % b.n; r != b.rank || !b.c.InPlace {
			b.copy(part(r), t.at(offs[i], offs[i+1]-offs[i]))
		}
	}
}

// allgathervRing passes every block around the ring, blocks longer than the
// mean in pieces of the mean: a single long block then flows as if it were many
// of equal length. The rounds of different ranks need not be the same ones: a
// rank sends in a round what it has by then.
func allgathervRing(b *builder) {
	part := b.parts()
	if !b.c.InPlace {
		b.copy(part(b.rank), b.elems(Send, 0, b.c.RecvCounts[b.rank]))
		b.round()
	}
	mean := max(1, (b.c.Count+b.n-1)/b.n) * b.size
	left, right := mod(b.rank-1, b.n), mod(b.rank+1, b.n)
	out := pieces{part: part, n: b.n, step: mean, block: b.rank, left: b.n - 1}
	in := pieces{part: part, n: b.n, step: mean, block: left, left: b.n - 1}
	// Without an own block there is nothing to send until the first piece is
	// there.
	wait := b.c.RecvCounts[b.rank] == 0
	for {
		from, more := in.next()
		b.recv(left, from)
		if !wait {
			to, ok := out.next()
			b.send(right, to)
			more = more || ok
		}
		wait = false
		b.round()
		if !more {
			return
		}
	}
}

// pieces yields the pieces of left blocks, from block downwards.
type pieces struct {
	part        func(i int) Region
	n, step     int
	block, left int
	off         int
}

// next returns the next piece; false at the end.
func (p *pieces) next() (Region, bool) {
	for p.left > 0 {
		r := p.part(p.block)
		if p.off < r.N {
			piece := r.at(p.off, min(p.step, r.N-p.off))
			p.off += piece.N
			return piece, true
		}
		p.block, p.left, p.off = mod(p.block-1, p.n), p.left-1, 0
	}
	return Region{}, false
}
