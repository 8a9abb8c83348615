package coll

// scanDoubling and exscanDoubling: in step k, r and r^2^k exchange the combined values of
// their aligned blocks of 2^k ranks. The upper rank combines the lower block with its
// result, from the left. A block is exchanged only if it is complete and another rank needs
// it: there is no rank above the last blocks.
//
// Recursive doubling after Hillis, Steele: Data parallel algorithms, 1986.
func scanDoubling(b *builder) { b.prefix(false) }

func exscanDoubling(b *builder) { b.prefix(true) }

func (b *builder) prefix(exclusive bool) {
	own := b.elems(b.in(), 0, b.c.Count)
	out := b.elems(Recv, 0, b.c.Count)
	block := own // what this rank's block of ranks combines to
	result := own
	var theirs, sum Region // scratch for what comes and for block
	started := !exclusive
	for d := 1; d < b.n; d *= 2 {
		peer := b.rank ^ d
		if peer >= b.n {
			continue
		}
		upper := b.rank > peer
		needed := (b.rank|(2*d-1))+1 < b.n // the block of 2d ranks, by those above
		if upper || needed {
			if theirs.N == 0 {
				theirs = b.temp(own.N)
			}
			b.recv(peer, theirs)
		}
		if !upper || needed {
			b.send(peer, block)
		}
		if needed {
			if sum.N == 0 {
				sum = b.temp(own.N)
			}
			b.reduce(sum, block, theirs, !upper)
		}
		if upper {
			// In place this may overwrite the own value, which by now is in sum
			// or not needed any more.
			if started {
				b.reduce(out, result, theirs, false)
			} else {
				b.copy(out, theirs)
			}
			started, result = true, out
		}
		b.round()
		if needed {
			block = sum
		}
	}
	if !exclusive {
		b.copy(out, result)
	}
}
