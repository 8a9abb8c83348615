package coll

import "github.com/cohort-hpc/cohort/backend"

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
