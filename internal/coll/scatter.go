package coll

// scatterBinomial hands the blocks down the binomial tree: each rank gets the
// blocks of its subtree at once. It is gatherBinomial the other way.
func scatterBinomial(b *builder) {
	root := b.c.Root
	v := mod(b.rank-root, b.n)
	blk := b.c.Count * b.size
	sub := subtree(v, b.n)
	if v == 0 {
		if !b.c.InPlace {
			b.copy(b.blocks(Recv, 0, 1), b.blocks(Send, root, root+1))
		}
		// One subtree may go past the last rank and on from rank 0.
		var wrapped Region
		for d := 1; d < b.n; d *= 2 {
			if child, m := mod(d+root, b.n), subtree(d, b.n); child+m > b.n {
				head := b.n - child
				wrapped = b.temp(m * blk)
				b.copy(wrapped.at(0, head*blk), b.blocks(Send, child, b.n))
				b.copy(wrapped.at(head*blk, (m-head)*blk), b.blocks(Send, 0, m-head))
				b.round()
			}
		}
		// The largest subtree first, it has the longest way.
		for d := floorPow2(b.n - 1); d > 0; d /= 2 {
			child, m := mod(d+root, b.n), subtree(d, b.n)
			if child+m > b.n {
				b.send(child, wrapped)
			} else {
				b.send(child, b.blocks(Send, child, child+m))
			}
		}
		return
	}
	parent := mod(v&(v-1)+root, b.n)
	own := b.blocks(Recv, 0, 1)
	if sub == 1 {
		b.recv(parent, own)
		return
	}
	t := b.temp(sub * blk)
	b.recv(parent, t)
	b.copy(own, t.at(0, blk))
	b.round()
	for d := floorPow2(sub - 1); d > 0; d /= 2 {
		b.send(mod(v+d+root, b.n), t.at(d*blk, subtree(v+d, b.n)*blk))
	}
}

// scatterLinear: the root sends every rank its block.
func scatterLinear(b *builder) { b.fromRoot(b.equalBlock(Send), b.blocks(Recv, 0, 1)) }

// scattervLinear: the root sends every rank its block, even an empty one, because only the
// receiver can compare its length with the expected one.
func scattervLinear(b *builder) {
	b.empty = true
	c := b.c
	b.fromRoot(func(i int) Region { return b.elems(Send, c.SendDispls[i], c.SendDispls[i]+c.SendCounts[i]) }, Region{Recv, 0, len(c.Recv)})
}

// fromRoot sends the ranks' blocks from the root, where each has its home.
func (b *builder) fromRoot(home func(rank int) Region, own Region) {
	if b.rank != b.c.Root {
		b.recv(b.c.Root, own)
		return
	}
	for i := range b.n {
		switch {
		case i != b.rank:
			b.send(i, home(i))
		case !b.c.InPlace:
			b.copy(own.at(0, home(i).N), home(i))
		}
	}
}
