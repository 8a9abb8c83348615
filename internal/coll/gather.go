package coll

// gatherBinomial collects the blocks up the binomial tree: each rank sends the
// blocks of its subtree at once.
//
// Chan, Heimlich, Purkayastha, van de Geijn: Collective communication: theory,
// practice, and experience, 2007 (minimum-spanning-tree gather).
func gatherBinomial(b *builder) {
	root := b.c.Root
	v := mod(b.rank-root, b.n)
	blk := b.c.Count * b.size
	own := b.blocks(b.in(), 0, 1)
	sub := subtree(v, b.n)
	if v != 0 && sub == 1 {
		b.send(mod(v&(v-1)+root, b.n), own)
		return
	}
	if v == 0 {
		if b.c.InPlace {
			own = b.blocks(Recv, root, root+1)
		}
		b.copy(b.blocks(Recv, root, root+1), own)
		for d := 1; d < b.n; d *= 2 {
			child, m := mod(d+root, b.n), subtree(d, b.n)
			if child+m <= b.n {
				b.recv(child, b.blocks(Recv, child, child+m))
				continue
			}
			// The subtree goes past the last rank and on from rank 0.
			t := b.temp(m * blk)
			b.recv(child, t)
			head := b.n - child
			b.copy(b.blocks(Recv, child, b.n), t.at(0, head*blk))
			b.copy(b.blocks(Recv, 0, m-head), t.at(head*blk, (m-head)*blk))
		}
		return
	}
	t := b.temp(sub * blk)
	b.copy(t.at(0, blk), own)
	for d := 1; d < sub; d *= 2 {
		b.recv(mod(v+d+root, b.n), t.at(d*blk, subtree(v+d, b.n)*blk))
	}
	b.round()
	b.send(mod(v&(v-1)+root, b.n), t)
}

// gatherLinear: every rank sends its block to the root.
func gatherLinear(b *builder) { b.toRoot(b.blocks(b.in(), 0, 1), b.equalBlock(Recv)) }

// gathervLinear: every rank sends its block to the root, even an empty one, because only the
// root can compare its length with the expected one.
func gathervLinear(b *builder) {
	b.empty = true
	b.toRoot(Region{Send, 0, len(b.c.Send)}, b.parts())
}

// toRoot sends the ranks' own blocks to the root, where each has its home.
func (b *builder) toRoot(own Region, home func(rank int) Region) {
	if b.rank != b.c.Root {
		b.send(b.c.Root, own)
		return
	}
	for i := range b.n {
		switch {
		case i != b.rank:
			b.recv(i, home(i))
		case !b.c.InPlace:
			b.copy(home(i), own.at(0, home(i).N))
		}
	}
}
