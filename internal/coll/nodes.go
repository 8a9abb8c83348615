package coll

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// Nodes maps the ranks of a communicator to nodes, for algorithms in which one rank of a
// node, its leader, communicates with the other nodes. It never changes.
type Nodes struct {
	of      []int   // by rank; nodes are numbered in the order of their lowest ranks
	members [][]int // by node, ascending
	order   []int   // the ranks node by node
	largest int     // ranks on one node
	starts  []int   // by node: where in order its ranks begin; at the end, the number of ranks

	// The algorithms that ignore nodes send this much from node to node.
	bruck    int     // messages of alltoall/bruck
	halving  float64 // bytes of reduce_scatter/recursive-halving for a vector of 1, no fewer
	pairwise float64 // bytes of reduce_scatter/pairwise for a vector of 1
}

// NewNodes returns the nodes of size ranks. Two ranks are on one node if nodeOf returns the
// same number for them; all ranks must agree on that. It returns nil if nodes make no
// difference, because all ranks are on one node or each is on another one. nil is valid
// wherever this package takes nodes.
func NewNodes(size int, nodeOf func(rank int) int) *Nodes {
	here := 0
	for here < size && nodeOf(here) == nodeOf(0) {
		here++
	}
	if here == size {
		return nil
	}
	p := &Nodes{of: make([]int, size)}
	number := map[int]int{}
	for r := range size {
		id := nodeOf(r)
		n, ok := number[id]
		if !ok {
			n = len(p.members)
			number[id] = n
			p.members = append(p.members, nil)
		}
		p.of[r] = n
		p.members[n] = append(p.members[n], r)
	}
	if len(p.members) == size {
		return nil
	}
	for _, m := range p.members {
		p.starts = append(p.starts, len(p.order))
		p.order = append(p.order, m...)
		p.largest = max(p.largest, len(m))
	}
	p.starts = append(p.starts, size)
	p.measure()
	return p
}

// measure counts what the algorithms without nodes send across.
func (p *Nodes) measure() {
	n := len(p.of)
	for d := 1; d < n; d *= 2 {
		for r := range n {
			if p.of[r] != p.of[(r+d)%n] {
				p.bruck++
			}
		}
	}
	f := newFold(n, -1)
	for r := 0; r < 2*f.rem; r += 2 {
		if p.of[r] != p.of[r+1] {
			p.halving += 1 + 1/float64(n)
		}
	}
	for d := 1; d < f.p; d *= 2 {
		for v := range f.p {
			if p.of[f.rank(v)] != p.of[f.rank(v^d)] {
				p.halving += 1 / float64(2*d)
			}
		}
	}
	if f.rem > 0 {
		p.halving *= 2 // a part may be twice as long as another
	}
	for _, m := range p.members {
		p.pairwise += float64(len(m)*(n-len(m))) / float64(n)
	}
}

// Size returns the number of nodes.
func (p *Nodes) Size() int { return len(p.members) }

// Tour returns the ranks node by node, and the position in this order at which each node's
// ranks begin, followed by the number of ranks. The caller must not change them.
func (p *Nodes) Tour() (ranks, starts []int) { return p.order, p.starts }

// leader returns the leader of a node: root if it is on the node, otherwise the lowest
// rank.
func (p *Nodes) leader(node, root int) int {
	if root >= 0 && p.of[root] == node {
		return root
	}
	return p.members[node][0]
}

// leaders returns the leaders of all nodes.
func (p *Nodes) leaders(root int) []int {
	l := make([]int, len(p.members))
	for i := range l {
		l[i] = p.leader(i, root)
	}
	return l
}

// inOrder reports whether the ranks are in the order of their nodes.
func (p *Nodes) inOrder() bool { return slices.IsSorted(p.order) }

// among calls f to build an algorithm for a group of ranks, which f numbers from 0 in the
// order given. It does nothing on ranks that are not in the group.
func (b *builder) among(group []int, root int, f func(b *builder)) {
	i := slices.Index(group, b.rank)
	if i < 0 || len(group) < 2 {
		return
	}
	call, rank, n, peers := b.c, b.rank, b.n, b.peers
	c := *call
	c.Root = root
	b.c, b.rank, b.n, b.peers = &c, i, len(group), group
	f(b)
	b.round()
	b.c, b.rank, b.n, b.peers = call, rank, n, peers
}

// bcastAmong sends the root's r to all of a group, with the algorithm that is chosen for
// that number of ranks on such a link.
func (b *builder) bcastAmong(group []int, root int, r Region, l link) {
	b.among(group, root, func(b *builder) {
		b.vec = r
		choose(backend.Bcast, shape{n: b.n, bytes: r.N, link: l, limits: b.lim}).build(b)
	})
}

// barrierNodes: the ranks of each node signal their leader, up a binomial tree. The leaders
// signal each other as in barrierDissemination, and then their nodes.
func barrierNodes(b *builder) {
	p := b.nodes
	node := p.members[p.of[b.rank]]
	b.empty = true
	b.among(node, 0, func(b *builder) {
		sub := subtree(b.rank, b.n)
		for d := 1; d < sub; d *= 2 {
			b.recv(b.rank+d, Region{})
		}
		b.round()
		if b.rank != 0 {
			b.send(b.rank&(b.rank-1), Region{})
		}
	})
	b.among(p.leaders(-1), 0, barrierDissemination)
	b.among(node, 0, func(b *builder) {
		b.vec = Region{}
		bcastBinomial(b)
	})
}

// bcastNodes: the root sends the vector to the other nodes' leaders, and each leader to its
// node, both with the algorithm that is chosen for that number of ranks.
func bcastNodes(b *builder) {
	p, root := b.nodes, b.c.Root
	b.bcastAmong(p.leaders(root), p.of[root], b.vec, b.lim.far)
	mine := p.of[b.rank]
	node := p.members[mine]
	b.bcastAmong(node, slices.Index(node, p.leader(mine, root)), b.vec, b.lim.near)
}

// bcastNodesChain is bcastChain along the ranks node by node, the root's first.
func bcastNodesChain(b *builder) {
	p, root := b.nodes, b.c.Root
	order := []int{root}
	for i := range p.members {
		for _, r := range p.members[(p.of[root]+i)%len(p.members)] {
			if r != root {
				order = append(order, r)
			}
		}
	}
	b.among(order, 0, bcastChain)
}
