package coll

import (
	"math/bits"

	"github.com/cohort-hpc/cohort/backend"
)

// blockBounds returns the element offsets of the ranks' blocks of the vector:
// rank i's is [f(i), f(i+1)).
func (b *builder) blockBounds() func(i int) int {
	if b.c.Coll == backend.ReduceScatterBlock {
		return func(i int) int { return i * b.c.Count }
	}
	bounds := make([]int, b.n+1)
	for i, n := range b.c.RecvCounts {
		bounds[i+1] = bounds[i] + n
	}
	return func(i int) int { return bounds[i] }
}

// reduceScatterHalving is recursive halving over the blocks themselves. Virtual
// rank v ends up with the part whose number is v with its bits reversed, so the
// vector is first put in that order; v's part holds the blocks of the one or
// two ranks that it stands for.
//
// Thakur, Rabenseifner, Gropp 2005, section 4.4.
func reduceScatterHalving(b *builder) {
	bound := b.blockBounds()
	in := b.in()
	f := newFold(b.n, -1)
	v, take := f.virtual(b.rank)
	own := bound(b.rank+1) - bound(b.rank)
	result := b.elems(Recv, 0, own)
	if !take {
		b.send(b.rank^1, b.elems(in, 0, bound(b.n)))
		b.round()
		b.recv(b.rank^1, result)
		return
	}

	// 1. The order of parts, and where each begins in elements.
	first, last := ranksOf(f) // of virtual rank
	log := bits.Len(uint(f.p)) - 1
	reversed := func(i int) int { return int(bits.Reverse64(uint64(i)) >> (64 - log)) }
	begins := make([]int, f.p+1)
	for i := range f.p {
		o := reversed(i)
		begins[i+1] = begins[i] + bound(last(o)+1) - bound(first(o))
	}
	part := func(i int) int { return begins[i] * b.size }

	// 2. The vector in that order, the partner's added on the way.
	w := vector{cur: b.elems(in, 0, bound(b.n))}
	switch {
	case f.paired(b.rank):
		w.acc = b.temp(w.cur.N)
		w.tmp = b.temp(w.cur.N)
		b.recv(b.rank^1, w.tmp)
		for i := range f.p {
			o := reversed(i)
			off, n := bound(first(o))*b.size, part(i+1)-part(i)
			b.reduce(w.acc.at(part(i), n), w.cur.at(off, n), w.tmp.at(off, n), b.rank%2 == 0)
		}
		w.cur = w.acc
		b.round()
	case f.p > 2:
		w.acc = b.temp(w.cur.N)
		for i := range f.p {
			b.copy(w.acc.at(part(i), part(i+1)-part(i)), w.cur.at(bound(first(reversed(i)))*b.size, part(i+1)-part(i)))
		}
		w.cur = w.acc
		b.round()
	default:
		// Two parts are in order as they are.
		w.acc = b.temp(w.cur.N)
	}

	// 3. Halving, after which the own block and the partner's go home.
	lo, _ := b.halve(f, &w, v, part)
	r := w.acc.at(part(lo), part(lo+1)-part(lo))
	at := (bound(b.rank) - bound(first(v))) * b.size
	b.copy(result, r.at(at, result.N))
	b.round()
	if f.paired(b.rank) {
		mate := b.rank ^ 1
		b.send(mate, r.at((bound(mate)-bound(first(v)))*b.size, (bound(mate+1)-bound(mate))*b.size))
	}
}

// ranksOf returns the first and the last rank that a virtual rank stands for.
func ranksOf(f fold) (first, last func(v int) int) {
	first = func(v int) int {
		if v < f.rem {
			return 2 * v
		}
		return v + f.rem
	}
	last = func(v int) int {
		if v < f.rem {
			return 2*v + 1
		}
		return v + f.rem
	}
	return first, last
}

// reduceScatterPairwise: every two ranks exchange their parts of each other's
// chunk, and each combines what it has as soon as both operands are there.
//
// Thakur, Rabenseifner, Gropp 2005, section 4.4; the partial results are kept
// apart until the tree order allows to combine them.
func reduceScatterPairwise(b *builder) {
	final := b.chunkResult()
	in := b.in()
	t := newClimb(b, final, b.chunk(in, b.rank))
	for k := 1; k <= b.n/2; k++ {
		pair, m := beside(b.rank, k, b.n)
		for _, p := range pair[:m] {
			got := b.temp(final.N)
			b.recv(p, got)
			b.send(p, b.chunk(in, p))
			t.add(p, got)
		}
		b.round()
	}
	b.deliver(final)
}

// reduceScatterRing scatters the reduction around the ring.
//
// Patarasuk, Yuan 2009 (the first half of their allreduce).
func reduceScatterRing(b *builder) {
	final := b.chunkResult()
	b.ringScatter(final)
	b.deliver(final)
}

// chunkResult returns where the result of this rank's even share of the vector
// goes: its block of Recv if all blocks are equal, scratch otherwise.
func (b *builder) chunkResult() Region {
	n := b.chunk(Recv, b.rank).N
	if b.c.Coll == backend.ReduceScatterBlock {
		return Region{Recv, 0, n}
	}
	return b.temp(n)
}

// deliver sends the parts of this rank's chunk of the result to the ranks whose
// blocks they belong to, and receives those of its block.
func (b *builder) deliver(chunk Region) {
	if b.c.Coll == backend.ReduceScatterBlock {
		return
	}
	bound := b.blockBounds()
	share := func(i int) (int, int) { return split(b.order.count, b.n, i), split(b.order.count, b.n, i+1) }
	lo, hi := share(b.rank)
	own, end := bound(b.rank), bound(b.rank+1)
	for i := range b.n {
		slo, shi := share(i)
		if from, to := max(own, slo), min(end, shi); from < to {
			dst := b.elems(Recv, from-own, to-own)
			if i == b.rank {
				b.copy(dst, chunk.at((from-lo)*b.size, dst.N))
			} else {
				b.recv(i, dst)
			}
		}
		if from, to := max(bound(i), lo), min(bound(i+1), hi); from < to && i != b.rank {
			b.send(i, chunk.at((from-lo)*b.size, (to-from)*b.size))
		}
	}
	b.round()
}

// climb combines the ranks' values in tree order as they become known. This
// rank's own value, which is only read, is made known first; the others are in
// scratch.
type climb struct {
	b     *builder
	f     fold
	final Region
	known [][]Region // by level; level 0 is the pairs
	have  [][]bool
}

func newClimb(b *builder, final, own Region) *climb {
	t := &climb{b: b, f: newFold(b.n, -1), final: final}
	for width := b.n; ; width = t.f.p >> (len(t.known) - 1) {
		t.known = append(t.known, make([]Region, width))
		t.have = append(t.have, make([]bool, width))
		if width == 1 {
			t.add(b.rank, own)
			return t
		}
	}
}

// add makes rank's value known.
func (t *climb) add(rank int, r Region) {
	i := rank - t.f.rem
	if t.f.paired(rank) {
		mate := rank ^ 1
		if !t.have[0][mate] {
			t.have[0][rank], t.known[0][rank] = true, r
			return
		}
		t.b.reduce(r, r, t.known[0][mate], rank < mate)
		i = rank / 2
	}
	for level := 1; level < len(t.known)-1; level++ {
		if !t.have[level][i^1] {
			t.have[level][i], t.known[level][i] = true, r
			return
		}
		to := r
		if level == len(t.known)-2 {
			to = t.final
		}
		t.b.reduce(to, r, t.known[level][i^1], i&1 == 0)
		i /= 2
	}
}
