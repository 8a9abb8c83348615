package coll

import (
	"math/rand/v2"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// edge is the i-th block of a rank to another one's place for the k-th.
type edge struct{ from, i, to, k int }

// edges returns the neighbors of all ranks, and which block goes where by definition: in a grid each rank
// sends up and down in each dimension, and what it sends up comes from below.
func (tr *trial) edges(rng *rand.Rand) (all []*backend.Neighbors, edges []edge) {
	n := tr.n
	for range n {
		all = append(all, &backend.Neighbors{})
	}
	if tr.degree == 0 && rng.IntN(2) == 0 {
		d := rng.IntN(n) + 1
		for n%d != 0 {
			d--
		}
		dims, periods := []int{n / d, d}, []bool{rng.IntN(2) == 0, rng.IntN(2) == 0}
		for r, p := range all {
			p.Cart = true
			for dim, at := range []int{r / d, r % d} {
				for side, step := range []int{-1, 1} {
					to := at + step
					if periods[dim] {
						to = (to + dims[dim]) % dims[dim]
					}
					if to < 0 || to >= dims[dim] {
						p.Destinations = append(p.Destinations, backend.ProcNull)
						continue
					}
					other := r + (to-at)*[]int{d, 1}[dim]
					p.Destinations = append(p.Destinations, other)
					edges = append(edges, edge{r, 2*dim + side, other, 2*dim + 1 - side})
				}
			}
			p.Sources = p.Destinations
		}
		return all, edges
	}
	// Of a graph, the edges from one rank to another are in the same order on both.
	add := func(from, to int) {
		a, b := all[from], all[to]
		edges = append(edges, edge{from, len(a.Destinations), to, len(b.Sources)})
		a.Destinations, b.Sources = append(a.Destinations, to), append(b.Sources, from)
	}
	for r := range n {
		for d := range tr.degree {
			add(r, (r+d+1)%n)
		}
	}
	if tr.degree == 0 {
		for range rng.IntN(4 * n) {
			add(rng.IntN(n), rng.IntN(n))
		}
	}
	return all, edges
}

// prepareNeighbors is prepare for the neighborhood collectives.
func (tr *trial) prepareNeighbors(rng *rand.Rand) {
	elem := tr.elem
	all, edges := tr.edges(rng)
	own := tr.coll == backend.NeighborAlltoall || tr.coll == backend.NeighborAlltoallv
	ragged := tr.coll == backend.NeighborAllgatherv || tr.coll == backend.NeighborAlltoallv
	tr.packed = !ragged
	sends, recvs := make([][]int, tr.n), make([][]int, tr.n) // the lengths of the blocks
	length := func() int {
		if ragged {
			return rng.IntN(2*tr.count + 1)
		}
		return tr.count
	}
	for r, p := range all {
		same := length()
		for range p.Destinations {
			if own {
				same = length()
			}
			sends[r] = append(sends[r], same)
		}
		recvs[r] = slices.Repeat([]int{tr.count}, len(p.Sources)) // of ProcNull, the others follow
	}
	for _, e := range edges {
		recvs[e.to][e.k] = sends[e.from][e.i]
	}
	var sdispls, rdispls [][]int
	for r, c := range tr.calls {
		c.Neighbors, c.Count = all[r], 0
		sd, st := tr.layout(rng, sends[r])
		if !own {
			clear(sd)
			st = slices.Max(append(sends[r], 0))
		}
		rd, rt := tr.layout(rng, recvs[r])
		sdispls, rdispls = append(sdispls, sd), append(rdispls, rd)
		c.Send, c.Recv = random(rng, st*elem), random(rng, rt*elem)
		tr.want[r] = slices.Clone(c.Recv)
		if ragged {
			c.RecvCounts, c.RecvDispls = recvs[r], rd
			if own {
				c.SendCounts, c.SendDispls = sends[r], sd
			}
		}
	}
	for _, e := range edges {
		n, from, to := sends[e.from][e.i]*elem, sdispls[e.from][e.i]*elem, rdispls[e.to][e.k]*elem
		copy(tr.want[e.to][to:to+n], tr.calls[e.from].Send[from:from+n])
	}
}
