package coll

// ringScatter combines the ranks' vectors chunk by chunk in ring order. The
// chunk of rank c starts at c+1 and goes once around, each rank adding its
// part; rank c stores it in final, which may be the same part of the input or
// must not overlap what is sent.
//
// Partial results stay in two chunks of scratch that take turns in being
// received and sent.
func (b *builder) ringScatter(final Region) {
	in := b.in()
	longest := b.chunk(in, 0).N
	bufs := [2]Region{b.temp(longest), b.temp(longest)}
	left, right := mod(b.rank-1, b.n), mod(b.rank+1, b.n)
	give := b.chunk(in, left)
	for t := range b.n - 1 {
		own := b.chunk(in, mod(b.rank-2-t, b.n))
		got := bufs[t%2].at(0, own.N)
		b.recv(left, got)
		b.send(right, give)
		to := got
		if t == b.n-2 {
			to = final
		}
		b.reduce(to, got, own, true)
		b.round()
		give = got
	}
}

// ringGather passes n parts of Recv around the ring until every rank has all;
// rank r starts with part r.
func (b *builder) ringGather(part func(i int) Region) {
	left, right := mod(b.rank-1, b.n), mod(b.rank+1, b.n)
	for t := range b.n - 1 {
		b.recv(left, part(mod(b.rank-t-1, b.n)))
		b.send(right, part(mod(b.rank-t, b.n)))
		b.round()
	}
}
