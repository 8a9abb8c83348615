package coll

import "github.com/cohort-hpc/cohort/backend"

// builder collects one rank's actions. An algorithm calls send, recv, copy and reduce for
// the actions of a round, and then round. Messages and local work may be mixed in any
// order. Empty messages and copies are left out.
type builder struct {
	c       *backend.Call
	rank, n int
	size    int // bytes of an element
	lim     *limits
	order   Order // of the four reductions to a vector
	empty   bool  // empty messages are sent too
	nodes   *Nodes
	peers   []int  // the ranks that an algorithm among some of them numbers from 0; nil: all ranks
	vec     Region // the vector of a broadcast

	comm, local []Action
	rounds      []mark
	scratch     int
}

// mark is the end of a round in comm and local.
type mark struct{ comm, local int }

// in returns the buffer with this rank's input.
func (b *builder) in() Space {
	if b.c.InPlace && b.c.Coll != backend.Scatter && b.c.Coll != backend.Scatterv {
		return Recv
	}
	return Send
}

// elems returns the region of elements lo to hi-1 of a buffer.
func (b *builder) elems(s Space, lo, hi int) Region {
	return Region{s, lo * b.size, (hi - lo) * b.size}
}

// blocks returns the region of blocks lo to hi-1 of Count elements each.
func (b *builder) blocks(s Space, lo, hi int) Region { return b.elems(s, lo*b.c.Count, hi*b.c.Count) }

// chunk returns chunk i of a vector of the reduction's length, divided evenly over the ranks.
func (b *builder) chunk(s Space, i int) Region {
	return b.elems(s, split(b.order.count, b.n, i), split(b.order.count, b.n, i+1))
}

// at returns the n bytes at off of r.
func (r Region) at(off, n int) Region { return Region{r.Space, r.Off + off, n} }

// temp returns n bytes of scratch memory, aligned for any element.
func (b *builder) temp(n int) Region {
	r := Region{Temp, b.scratch, n}
	b.scratch += (n + 63) &^ 63
	return r
}

// peer returns the rank that the current algorithm numbers r.
func (b *builder) peer(r int) int {
	if b.peers == nil {
		return r
	}
	return b.peers[r]
}

func (b *builder) send(to int, r Region) {
	if r.N > 0 || b.empty {
		b.comm = append(b.comm, Action{Kind: SendTo, Peer: b.peer(to), A: r})
	}
}

func (b *builder) recv(from int, r Region) {
	if r.N > 0 || b.empty {
		b.comm = append(b.comm, Action{Kind: RecvFrom, Peer: b.peer(from), Dst: r})
	}
}

func (b *builder) copy(dst, src Region) {
	if dst.N > 0 && dst != src {
		b.local = append(b.local, Action{Kind: Copy, A: src, Dst: dst})
	}
}

// reduce sets dst to the combination of mine and theirs. lower means that mine has the
// operands of the lower ranks.
func (b *builder) reduce(dst, mine, theirs Region, lower bool) {
	if dst.N == 0 {
		return
	}
	if !lower {
		mine, theirs = theirs, mine
	}
	b.local = append(b.local, Action{Kind: Reduction, A: mine, B: theirs, Dst: dst})
}

// round ends a round. Local work without messages joins the round before.
func (b *builder) round() {
	m := mark{len(b.comm), len(b.local)}
	var last mark
	if len(b.rounds) > 0 {
		last = b.rounds[len(b.rounds)-1]
	}
	switch {
	case m == last:
	case m.comm == last.comm && len(b.rounds) > 0:
		b.rounds[len(b.rounds)-1] = m
	default:
		b.rounds = append(b.rounds, m)
	}
}

// schedule returns the collected actions as a schedule.
func (b *builder) schedule(algorithm string) *Schedule {
	b.round()
	s := &Schedule{Algorithm: algorithm, Rounds: make([]Round, len(b.rounds)), Scratch: b.scratch}
	var from mark
	for i, m := range b.rounds {
		s.Rounds[i] = Round{Comm: b.comm[from.comm:m.comm:m.comm], Local: b.local[from.local:m.local:m.local]}
		from = m
	}
	return s
}

// vector is a rank's value while ranks combine theirs. cur is where it is: first the
// input, then acc, which receives partial results.
type vector struct{ cur, acc, tmp Region }

// land returns where to receive the n bytes at off of another rank's value: acc as long
// as it is unused, otherwise scratch memory. The first use of scratch is the largest.
func (b *builder) land(w *vector, off, n int) Region {
	if w.cur.Space != w.acc.Space {
		return w.acc.at(off, n)
	}
	if w.tmp.N < n {
		w.tmp = b.temp(n)
	}
	return w.tmp.at(0, n)
}

// merge combines theirs into w at off.
func (b *builder) merge(w *vector, off int, theirs Region, lower bool) {
	b.reduce(w.acc.at(off, theirs.N), w.cur.at(off, theirs.N), theirs, lower)
}

// foldIn combines the values of paired ranks and returns the virtual rank and
// whether this rank goes on.
func (b *builder) foldIn(f fold, w *vector) (v int, in bool) {
	v, in = f.virtual(b.rank)
	switch {
	case !f.paired(b.rank):
	case in:
		b.accumulate(w)
		r := b.land(w, 0, w.cur.N)
		b.recv(b.rank^1, r)
		b.merge(w, 0, r, b.rank%2 == 0)
		b.round()
		w.cur = w.acc
	default:
		b.send(b.rank^1, w.cur)
		b.round()
	}
	return v, in
}

// foldOut sends the result r from the rank of a pair that took part to the one that did
// not.
func (b *builder) foldOut(f fold, in bool, r Region) {
	switch {
	case !f.paired(b.rank):
	case in:
		b.send(b.rank^1, r)
	default:
		b.recv(b.rank^1, r)
	}
	b.round()
}
