package sched

import (
	"slices"

	"github.com/cohort-hpc/cohort/internal/agree"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// leg is a step of an exchange: a message to a rank and one from a rank, each with what
// its sender has seen so far; -1 means no message.
type leg struct {
	from, to int
	// The message received covers count places from first on, in the order of the ranks
	// node by node, or of the ranks themselves without nodes. After the last place comes
	// the first.
	first, count int
}

// flatLegs returns the exchange of ranks that are all on one node, or each on another.
func flatLegs(rank, size int) (legs []leg) {
	for d := 1; d < size; d *= 2 {
		legs = append(legs, leg{from: (rank - d + size) % size, to: (rank + d) % size, first: (rank - 2*d + 1 + 2*size) % size, count: d})
	}
	return legs
}

// nodeLegs returns the exchange of ranks on several nodes: up a binomial tree to the lowest
// rank of each node, between these, and down the trees.
func nodeLegs(rank, size int, nodes *coll.Nodes) (legs []leg) {
	order, starts := nodes.Tour()
	n, mine := nodes.Size(), 0
	for !slices.Contains(order[starts[mine]:starts[mine+1]], rank) {
		mine++
	}
	start := starts[mine]
	node := order[start:starts[mine+1]]
	v := slices.Index(node, rank)
	most := len(node) // ranks at and below v
	if v > 0 {
		most = min(v&-v, len(node)-v)
	}
	for d := 1; d < most; d *= 2 {
		legs = append(legs, leg{from: node[v+d], to: -1, first: start + v + d, count: min(d, len(node)-v-d)})
	}
	if v > 0 {
		parent := node[v&(v-1)]
		legs = append(legs, leg{from: parent, to: parent, first: 0, count: size})
	} else {
		for d := 1; d < n; d *= 2 {
			l := leg{from: order[starts[(mine-d+n)%n]], to: order[starts[(mine+d)%n]], first: starts[(mine-2*d+1+2*n)%n]}
			for i := range d {
				k := (mine - 2*d + 1 + i + 2*n) % n
				l.count += starts[k+1] - starts[k]
			}
			legs = append(legs, l)
		}
	}
	// The largest subtree first: it has the longest way.
	for d := 1 << 30; d > 0; d /= 2 {
		if d < most {
			legs = append(legs, leg{from: -1, to: node[v+d]})
		}
	}
	return legs
}

// place finds out where the ranks are. The first operation calls it: most communicators
// never have one.
func (r *Runner) place() {
	if r.legs != nil || r.size < 2 {
		return
	}
	if r.nodes = coll.NewNodes(r.size, r.comm.NodeOf); r.nodes == nil {
		r.legs = flatLegs(r.rank, r.size)
		return
	}
	r.legs = nodeLegs(r.rank, r.size, r.nodes)
}

// addArrivals adds to s the ranks that a leg's message covers.
func (r *Runner) addArrivals(l *leg, s agree.Set) {
	if l.from < 0 {
		return
	}
	for i := range min(l.count, r.size) {
		rank := (l.first + i) % r.size
		if r.nodes != nil {
			order, _ := r.nodes.Tour()
			rank = order[rank]
		}
		s.Add(rank)
	}
}
