package coll

import "github.com/cohort-hpc/cohort/backend"

// parcel is one block of each rank, node by node in one piece of memory: Recv itself if it
// has the blocks in this order, otherwise scratch memory.
type parcel struct {
	b    *builder
	home func(rank int) Region // where a rank's block belongs in Recv
	own  Region                // where this rank's is
	base Region
	offs []int // by place in Nodes.order: where the block begins; at the end, the length
}

// parcel returns the memory; nothing is in it yet. The blocks are packed if in
// Recv they stand in the order of ranks, without gaps.
func (b *builder) parcel(home func(rank int) Region, own Region, packed bool) parcel {
	p := b.nodes
	k := parcel{b: b, home: home, own: own, offs: make([]int, b.n+1)}
	for i, r := range p.order {
		k.offs[i+1] = k.offs[i] + home(r).N
	}
	if packed && p.inOrder() {
		k.base = Region{Recv, home(0).Off, k.offs[b.n]}
	} else {
		k.base = b.temp(k.offs[b.n])
	}
	return k
}

// allgatherParcel returns the blocks of an Allgather or Allgatherv.
func (b *builder) allgatherParcel() parcel {
	packed := b.c.Coll == backend.Allgather
	home := b.equalBlock(Recv)
	if !packed {
		home = b.parts()
	}
	own := home(b.rank)
	if !b.c.InPlace {
		own = Region{Send, 0, own.N}
	}
	return b.parcel(home, own, packed)
}

// places returns the blocks from one place to before another.
func (k *parcel) places(lo, hi int) Region { return k.base.at(k.offs[lo], k.offs[hi]-k.offs[lo]) }

// node returns the blocks of a node's ranks.
func (k *parcel) node(i int) Region {
	p := k.b.nodes
	return k.places(p.starts[i], p.starts[i+1])
}

// collect sends the blocks of a node's ranks to its leader.
func (k *parcel) collect() {
	b := k.b
	p := b.nodes
	mine := p.of[b.rank]
	leader := p.leader(mine, -1)
	if b.rank != leader {
		b.send(leader, k.own)
		b.round()
		return
	}
	for i := p.starts[mine]; i < p.starts[mine+1]; i++ {
		if r := p.order[i]; r == b.rank {
			b.copy(k.places(i, i+1), k.own)
		} else {
			b.recv(r, k.places(i, i+1))
		}
	}
	b.round()
}

// unpack puts the blocks where they belong.
func (k *parcel) unpack() {
	if k.base.Space == Recv {
		return
	}
	b := k.b
	for i, r := range b.nodes.order {
		if r != b.rank || k.own != k.home(r) {
			b.copy(k.home(r), k.places(i, i+1))
		}
	}
	b.round()
}

// allgatherNodes: each leader collects the blocks of its node; the leaders
// exchange them as in allgatherBruck, and each gives all of them to its node.
func allgatherNodes(b *builder) {
	p := b.nodes
	mine := p.of[b.rank]
	k := b.allgatherParcel()
	k.collect()
	n := p.Size()
	offs := make([]int, n+1)
	for i := range n {
		offs[i+1] = offs[i] + k.node((mine+i)%n).N
	}
	b.among(p.leaders(-1), 0, func(l *builder) {
		t := l.bruck(k.node(mine), func(i int) int { return offs[i] })
		for i := 1; i < n; i++ {
			l.copy(k.node((mine+i)%n), t.at(offs[i], offs[i+1]-offs[i]))
		}
	})
	b.bcastAmong(p.members[mine], 0, k.base, b.lim.near)
	k.unpack()
}

// allgatherNodesRing: each leader collects the blocks of its node, and the leaders
// pass them around a ring in pieces. A leader sends what it receives to the next leader and,
// at the same time, along a chain of the ranks of its node.
//
// The ring is that of Thakur, Rabenseifner, Gropp 2005, section 4.1, the chain that
// of bcastChain.
func allgatherNodesRing(b *builder) {
	k := b.allgatherParcel()
	k.ring()
}

// allreduceNodesRing is allreduceRing, whose order does not depend on nodes. The results
// are distributed as in allgatherNodesRing.
func allreduceNodesRing(b *builder) {
	own := b.chunk(Recv, b.rank)
	b.ringScatter(own)
	k := b.parcel(func(i int) Region { return b.chunk(Recv, i) }, own, true)
	k.ring()
}

// ring sends all blocks to all ranks, and puts each in its place.
func (k *parcel) ring() {
	b := k.b
	p := b.nodes
	mine, n := p.of[b.rank], p.Size()
	k.collect()
	// As long as a rank's mean block, so that there are no more messages than in a ring of
	// ranks, and at least one segment long.
	step := max(b.lim.segment, (k.base.N+b.n-1)/b.n)
	chain := p.members[mine]
	all := pieces{part: k.node, n: n, step: step, block: mine, left: n}
	if b.rank != chain[0] {
		b.among(chain, 0, func(c *builder) {
			piece, more := all.next()
			var last Region
			for more || last.N > 0 {
				c.recv(c.rank-1, piece)
				if c.rank+1 < c.n {
					c.send(c.rank+1, last)
				}
				c.round()
				last = piece
				piece, more = all.next()
			}
		})
		k.unpack()
		return
	}
	left, right := p.leader(mod(mine-1, n), -1), p.leader(mod(mine+1, n), -1)
	out := pieces{part: k.node, n: n, step: step, block: mine, left: n - 1}
	in := pieces{part: k.node, n: n, step: step, block: mod(mine-1, n), left: n - 1}
	// A leader whose node has no blocks has nothing to pass on until the first piece
	// arrives.
	wait := k.node(mine).N == 0
	for {
		from, more := in.next()
		b.recv(left, from)
		if !wait {
			to, ok := out.next()
			b.send(right, to)
			down, also := all.next()
			if len(chain) > 1 {
				b.send(chain[1], down)
			}
			more = more || ok || also
		}
		wait = false
		b.round()
		if !more {
			break
		}
	}
	k.unpack()
}

// gatherNodes: each leader collects the blocks of its node and sends them to the
// root, which is its node's leader, in one message.
func gatherNodes(b *builder) {
	own := b.blocks(b.in(), 0, 1)
	to, others := b.above()
	switch {
	case b.rank == b.c.Root:
		b.gatherRoot()
	case len(others) == 0:
		b.send(to, own)
	default:
		t := b.temp((1 + len(others)) * own.N)
		b.copy(t.at(0, own.N), own)
		for i, r := range others {
			b.recv(r, t.at((i+1)*own.N, own.N))
		}
		b.round()
		b.send(to, t)
	}
}

// above returns the rank with which this one exchanges blocks in gatherNodes and scatterNodes: its leader, or the root for
// a leader and for the ranks of the root's node. For a leader it returns the other ranks of the node too.
func (b *builder) above() (to int, others []int) {
	p, root := b.nodes, b.c.Root
	node := p.members[p.of[b.rank]]
	switch {
	case p.of[b.rank] == p.of[root]:
		return root, nil
	case b.rank != node[0]:
		return node[0], nil
	}
	return root, node[1:]
}

// gatherRoot is the root's part in gatherNodes.
func (b *builder) gatherRoot() {
	p, root := b.nodes, b.c.Root
	blk := b.c.Count * b.size
	for i, node := range p.members {
		first := node[0]
		switch {
		case i == p.of[root]:
			for _, r := range node {
				if r != root {
					b.recv(r, b.blocks(Recv, r, r+1))
				} else if !b.c.InPlace {
					b.copy(b.blocks(Recv, r, r+1), b.blocks(Send, 0, 1))
				}
			}
		case node[len(node)-1]-first == len(node)-1:
			b.recv(first, b.blocks(Recv, first, first+len(node)))
		default:
			t := b.temp(len(node) * blk)
			b.recv(first, t)
			for j, r := range node {
				b.copy(b.blocks(Recv, r, r+1), t.at(j*blk, blk))
			}
		}
	}
}

// scatterNodes: the root, which is its node's leader, sends each other leader the blocks of
// its node in one message, and the leaders distribute them. It is gatherNodes in reverse.
func scatterNodes(b *builder) {
	own := b.blocks(Recv, 0, 1)
	from, others := b.above()
	switch {
	case b.rank == b.c.Root:
		b.scatterRoot()
	case len(others) == 0:
		b.recv(from, own)
	default:
		t := b.temp((1 + len(others)) * own.N)
		b.recv(from, t)
		b.copy(own, t.at(0, own.N))
		b.round()
		for i, r := range others {
			b.send(r, t.at((i+1)*own.N, own.N))
		}
	}
}

// scatterRoot is the root's part in scatterNodes.
func (b *builder) scatterRoot() {
	p, root := b.nodes, b.c.Root
	blk := b.c.Count * b.size
	apart := make([]Region, p.Size()) // the blocks of nodes whose ranks do not follow each other
	for i, node := range p.members {
		if i == p.of[root] || node[len(node)-1]-node[0] == len(node)-1 {
			continue
		}
		apart[i] = b.temp(len(node) * blk)
		for j, r := range node {
			b.copy(apart[i].at(j*blk, blk), b.blocks(Send, r, r+1))
		}
	}
	b.round()
	for i, node := range p.members { // what has the longest way first
		switch {
		case i == p.of[root]:
		case apart[i].N > 0:
			b.send(node[0], apart[i])
		default:
			b.send(node[0], b.blocks(Send, node[0], node[0]+len(node)))
		}
	}
	for _, r := range p.members[p.of[root]] {
		if r != root {
			b.send(r, b.blocks(Send, r, r+1))
		} else if !b.c.InPlace {
			b.copy(b.blocks(Recv, 0, 1), b.blocks(Send, r, r+1))
		}
	}
}
