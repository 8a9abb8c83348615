package coll

import "math/bits"

// alltoallBruck: the block for the rank i above goes there in the steps of the
// bits of i. In step k each rank sends all blocks with bit k set, 2^k ranks up.
//
// Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all
// communications in multiport message-passing systems, 1997. Blocks are not
// rotated first: where each of them stands is known.
func alltoallBruck(b *builder) {
	blk := b.c.Count * b.size
	in := b.in()
	at := make([]Region, b.n) // the block that is to go, or has come, i ranks up
	for i := range at {
		r := (b.rank + i) % b.n
		at[i] = b.blocks(in, r, r+1)
	}
	pack := b.temp((b.n / 2) * blk)
	for k := range bits.Len(uint(b.n - 1)) {
		d := 1 << k
		m := 0
		for i := d; i < b.n; i++ {
			if i&d != 0 {
				b.copy(pack.at(m*blk, blk), at[i])
				m++
			}
		}
		b.round()
		got := b.temp(m * blk)
		b.recv(mod(b.rank-d, b.n), got)
		b.send(mod(b.rank+d, b.n), pack.at(0, m*blk))
		b.round()
		m = 0
		for i := d; i < b.n; i++ {
			if i&d != 0 {
				at[i] = got.at(m*blk, blk)
				m++
			}
		}
	}
	for i := range at {
		r := mod(b.rank-i, b.n)
		b.copy(b.blocks(Recv, r, r+1), at[i])
	}
}

// alltoallSpread exchanges blocks with many ranks at once.
func alltoallSpread(b *builder) {
	b.exchange(b.lim.window, b.equalBlock(b.in()), b.equalBlock(Recv))
}

// alltoallPairwise exchanges blocks with the two ranks at one distance at a
// time.
//
// Thakur, Rabenseifner, Gropp 2005, section 4.3; taking both ways together lets
// it work in place for any number of ranks.
func alltoallPairwise(b *builder) {
	b.exchange(1, b.equalBlock(b.in()), b.equalBlock(Recv))
}

func (b *builder) equalBlock(s Space) func(i int) Region {
	return func(i int) Region { return b.blocks(s, i, i+1) }
}

// alltoallvSpread exchanges blocks with many ranks at once, also empty ones:
// only where they meet is it known whether the two ranks mean the same length.
func alltoallvSpread(b *builder) {
	b.empty = true
	c := b.c
	to := func(i int) Region { return b.elems(Recv, c.RecvDispls[i], c.RecvDispls[i]+c.RecvCounts[i]) }
	from := to
	if !c.InPlace {
		from = func(i int) Region { return b.elems(Send, c.SendDispls[i], c.SendDispls[i]+c.SendCounts[i]) }
	}
	b.exchange(b.lim.window, from, to)
}

// exchange sends block from(i) to each rank i and receives its block into
// to(i), with the ranks at window distances at a time. In place, what comes
// waits in scratch until what stands there has gone.
func (b *builder) exchange(window int, from, to func(i int) Region) {
	b.copy(to(b.rank), from(b.rank))
	base := b.scratch
	most := base
	for k := 1; k <= b.n/2; k++ {
		pair, m := beside(b.rank, k, b.n)
		for _, p := range pair[:m] {
			dst := to(p)
			if b.c.InPlace {
				dst = b.temp(dst.N)
				b.copy(to(p), dst)
			}
			b.recv(p, dst)
			b.send(p, from(p))
		}
		if k%window == 0 {
			b.round()
			most, b.scratch = max(most, b.scratch), base
		}
	}
	b.round()
	b.scratch = max(most, b.scratch)
}
