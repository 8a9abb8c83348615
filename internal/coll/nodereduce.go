package coll

import "slices"

// Reductions of short vectors on several nodes. The order is the tree's. Only the place
// where each of its values is computed can be chosen.
//
// A unit is a largest part of the tree whose operands are all on one node: its
// value is computed among its ranks, without a message to another node. The nodes' leaders
// compute what is above the units. If a node has a power of two of consecutive ranks, it is
// one unit. If all neighbors of a rank are on other nodes, its operand is a unit, and has
// to cross in any case.

// branch is a unit, or what combines two branches.
type branch struct {
	lo, hi      int   // its ranks are lo to hi-1
	left, right int   // branches; -1 for a unit
	height      int   // above the units
	pair        bool  // two ranks of different nodes that fold into one
	nodes       []int // where its value may or will be, ascending
}

// canopy returns the branches of the order of all ranks: the children before
// what combines them, and the whole last.
func canopy(p *Nodes) []branch {
	n := len(p.of)
	f := newFold(n, -1)
	first, last := ranksOf(f)
	ends := make([]int, n) // by rank: where the ranks from it on are not on its node any more
	for r := n - 1; r >= 0; r-- {
		ends[r] = r + 1
		if r+1 < n && p.of[r+1] == p.of[r] {
			ends[r] = ends[r+1]
		}
	}
	var all []branch
	unit := func(lo, hi int) int {
		all = append(all, branch{lo: lo, hi: hi, left: -1, right: -1, nodes: p.of[lo : lo+1]})
		return len(all) - 1
	}
	var grow func(v, width int) int
	grow = func(v, width int) int {
		lo, hi := first(v), last(v+width-1)+1
		if ends[lo] >= hi {
			return unit(lo, hi)
		}
		x := branch{lo: lo, hi: hi}
		if width == 1 {
			x.left, x.right, x.pair = unit(lo, lo+1), unit(lo+1, hi), true
		} else {
			x.left, x.right = grow(v, width/2), grow(v+width/2, width/2)
		}
		x.height = 1 + max(all[x.left].height, all[x.right].height)
		all = append(all, x)
		return len(all) - 1
	}
	grow(0, f.p)
	return all
}

// units does the work inside the nodes: it computes the value of each unit on the leader of
// its node. On the leader it returns the values by branch.
func (b *builder) units(all []branch, w *vector, root int) []Region {
	values := make([]Region, len(all))
	leader := b.nodes.leader(b.nodes.of[b.rank], root)
	for i := range all {
		u := &all[i]
		if u.left >= 0 || b.rank < u.lo || b.rank >= u.hi {
			continue
		}
		to := u.lo
		if u.lo <= leader && leader < u.hi {
			to = leader
		}
		b.unite(u.lo, u.hi, w, to)
		if b.rank == to {
			values[i] = w.cur
			if to != leader {
				b.send(leader, w.cur)
				b.round()
			}
		}
	}
	if b.rank != leader {
		return nil
	}
	mine := b.nodes.of[b.rank]
	for i := range all {
		if u := &all[i]; u.left < 0 && u.nodes[0] == mine && (b.rank < u.lo || b.rank >= u.hi) {
			values[i] = b.temp(w.cur.N)
			b.recv(u.lo, values[i])
		}
	}
	b.round()
	return values
}

// join computes the value of a branch on a leader that has both of its operands.
func (b *builder) join(all []branch, values []Region, i int, result Region) {
	x, y := values[all[i].left], values[all[i].right]
	dst := x
	switch {
	case i == len(all)-1 && result.N > 0:
		dst = result
	case x.Space != Temp && y.Space == Temp:
		dst = y
	case x.Space == Send:
		dst = b.temp(x.N)
	}
	b.reduce(dst, x, y, true)
	values[i] = dst
}

// allreduceNodes: the units are reduced in the nodes. Then, from the lowest
// branches up, each node that contributes to a branch gets its value: a node that contributes
// to both operands has both, and the others receive the one they lack from a node that has it.
// If every node has a power of two of consecutive ranks, this is recursive doubling among the
// leaders. At the end each leader sends the result to its node.
func allreduceNodes(b *builder) {
	p := b.nodes
	mine := p.of[b.rank]
	leader := p.leader(mine, -1)
	all := canopy(p)
	w := allreduceVector(b)
	result := w.acc
	values := b.units(all, &w, -1)
	if b.rank == leader {
		b.share(all, values, result)
	}
	b.vec = result
	b.among(p.members[mine], 0, bcastBinomial)
}

// share is the leaders' part of allreduceNodes.
func (b *builder) share(all []branch, values []Region, result Region) {
	p := b.nodes
	mine := p.of[b.rank]
	// supply has each of the nodes in to get a branch's value from one of those
	// in from.
	supply := func(i int, to, from []int) {
		for k, node := range to {
			source := from[k%len(from)]
			switch mine {
			case node:
				if values[i].N == 0 {
					values[i] = b.temp(result.N)
				}
				b.recv(p.leader(source, -1), values[i])
			case source:
				b.send(p.leader(node, -1), values[i])
			}
		}
	}
	top := len(all) - 1
	for h := 1; h <= all[top].height; h++ {
		for i := range all {
			x := &all[i]
			if x.height != h {
				continue
			}
			l, r := all[x.left].nodes, all[x.right].nodes
			onlyL, onlyR, both := compare(l, r)
			x.nodes = l
			supply(x.right, onlyL, slices.Concat(onlyR, both))
			if !x.pair {
				supply(x.left, onlyR, slices.Concat(onlyL, both))
				x.nodes = slices.Concat(onlyL, both, onlyR)
				slices.Sort(x.nodes)
			}
		}
		for i := range all {
			if all[i].height == h && slices.Contains(all[i].nodes, mine) {
				b.join(all, values, i, result)
			}
		}
		b.round()
	}
	// A rank that has only sent its value to its partner lacks the result.
	var lack []int
	for node := range p.members {
		if !slices.Contains(all[top].nodes, node) {
			lack = append(lack, node)
		}
	}
	if slices.Contains(lack, mine) {
		values[top] = result
	}
	supply(top, lack, all[top].nodes)
	b.round()
}

// compare returns what is in x only, in y only, and in both, of ascending numbers.
func compare(x, y []int) (onlyX, onlyY, both []int) {
	for len(x) > 0 && len(y) > 0 {
		switch {
		case x[0] < y[0]:
			onlyX, x = append(onlyX, x[0]), x[1:]
		case x[0] > y[0]:
			onlyY, y = append(onlyY, y[0]), y[1:]
		default:
			both, x, y = append(both, x[0]), x[1:], y[1:]
		}
	}
	return append(onlyX, x...), append(onlyY, y...), both
}

// reduceNodes: the units are reduced in the nodes, and the branches above on
// leaders that are chosen so that no fewer values can cross. That is the problem of
// labeling a tree whose leaves have labels with the fewest changes along its
// edges.
//
// Fitch: Toward defining the course of evolution: minimum change for a specific
// tree topology. Systematic Zoology 20(4), 1971.
func reduceNodes(b *builder) {
	p, root := b.nodes, b.c.Root
	mine := p.of[b.rank]
	all := canopy(p)
	w := reduceVector(b)
	values := b.units(all, &w, root)
	if b.rank != p.leader(mine, root) {
		return
	}

	// 1. Find the nodes where each value can be computed: those of both operands, or else those of either.
	top := len(all) - 1
	for i := range all {
		if x := &all[i]; x.left >= 0 {
			onlyL, onlyR, both := compare(all[x.left].nodes, all[x.right].nodes)
			if x.nodes = both; len(both) == 0 {
				x.nodes = slices.Concat(onlyL, onlyR)
				slices.Sort(x.nodes)
			}
		}
	}

	// 2. Choose the node of each value: the one where it is wanted, if it can be computed there.
	at := make([]int, len(all))
	place := func(i, wanted int) {
		if at[i] = all[i].nodes[0]; slices.Contains(all[i].nodes, wanted) {
			at[i] = wanted
		}
	}
	place(top, p.of[root])
	for i := top; i >= 0; i-- {
		if all[i].left >= 0 {
			place(all[i].left, at[i])
			place(all[i].right, at[i])
		}
	}

	// 3. The values of each height, after what has to cross for them.
	move := func(i, to int) {
		switch {
		case at[i] == to:
		case mine == to:
			values[i] = b.temp(w.cur.N)
			b.recv(p.leader(at[i], root), values[i])
		case mine == at[i]:
			b.send(p.leader(to, root), values[i])
		}
	}
	var result Region
	if b.rank == root {
		result = b.elems(Recv, 0, b.c.Count)
	}
	for h := 1; h <= all[top].height; h++ {
		for i := range all {
			if all[i].height == h {
				move(all[i].left, at[i])
				move(all[i].right, at[i])
				if at[i] == mine {
					b.join(all, values, i, result)
				}
			}
		}
		b.round()
	}
	if to := p.of[root]; at[top] != to {
		switch mine {
		case to:
			b.recv(p.leader(at[top], root), result)
		case at[top]:
			b.send(root, values[top])
		}
		b.round()
	}
}
