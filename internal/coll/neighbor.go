package coll

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// neighborLinear exchanges a block with each neighbor, all in one round. It sends empty blocks too,
// because only the receiver of a block can compare its length with that which the sender means.
//
// Messages between two ranks match in order, which is that of the edges of a graph. In a grid, the block for
// the lower neighbor arrives there as the block from the upper neighbor, and a rank sends to its lower neighbor
// first (MPI-4.1 section 8.6, Example 8.10). So a rank receives from the upper neighbor first.
func neighborLinear(b *builder) {
	b.empty = true
	p := b.c.Neighbors
	for i := range p.Sources {
		if p.Cart {
			i ^= 1
		}
		if from := p.Sources[i]; from != backend.ProcNull {
			b.recv(from, b.neighborBlock(Recv, i))
		}
	}
	for i, to := range p.Destinations {
		if to != backend.ProcNull {
			b.send(to, b.neighborBlock(Send, i))
		}
	}
}

// neighborBlock returns the region of the block for the i-th destination, or from the i-th source.
func (b *builder) neighborBlock(s Space, i int) Region {
	c := b.c
	counts, displs, n := c.SendCounts, c.SendDispls, len(c.Send)/max(len(c.Neighbors.Destinations), 1)
	if s == Recv {
		counts, displs, n = c.RecvCounts, c.RecvDispls, len(c.Recv)/max(len(c.Neighbors.Sources), 1)
	}
	switch {
	case s == Send && (c.Coll == backend.NeighborAllgather || c.Coll == backend.NeighborAllgatherv):
		return Region{Send, 0, len(c.Send)}
	case c.Coll == backend.NeighborAllgatherv || c.Coll == backend.NeighborAlltoallv:
		return b.elems(s, displs[i], displs[i]+counts[i])
	}
	return Region{s, i * n, n}
}

// checkNeighbors is check for neighborhood collectives.
func checkNeighbors(c *backend.Call, size int) error {
	p := c.Neighbors
	if p == nil || p.Cart && (len(p.Sources)%2 != 0 || len(p.Sources) != len(p.Destinations)) {
		return fault("%v without neighbors", c.Coll)
	}
	for _, r := range slices.Concat(p.Sources, p.Destinations) {
		if r != backend.ProcNull && (r < 0 || r >= size) {
			return fault("%v with neighbor %d of %d ranks", c.Coll, r, size)
		}
	}
	var send, recv [][]int
	switch c.Coll {
	case backend.NeighborAlltoallv:
		send = [][]int{c.SendCounts, c.SendDispls}
		fallthrough
	case backend.NeighborAllgatherv:
		recv = [][]int{c.RecvCounts, c.RecvDispls}
	}
	if err := checkCounts(c, send, len(p.Destinations)); err != nil {
		return err
	}
	return checkCounts(c, recv, len(p.Sources))
}
