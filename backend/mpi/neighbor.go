//go:build cgo && linux

package mpi

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/libmpi"
)

// neighborhood is a communicator's graph in the library, for neighborhood collectives. Its edges are those
// to and from ranks, without ProcNull.
type neighborhood struct {
	graph        libmpi.Comm // 0: not made yet
	sends, recvs []int       // the numbers of the edges among the destinations and the sources
	counts       [4][]int    // of a call, as libmpi.Coll has them
}

// ownNeighbors reports whether the library makes a neighborhood collective. It is the same on all ranks. Only
// pairs of ranks know the lengths, as in Alltoallv. The first blocking call makes the graph, because that waits
// for all ranks.
func (c *comm) ownNeighbors(call *backend.Call) bool {
	p := c.p
	switch {
	case !p.neighbors || p.polled || p.oneThread || p.guard || p.agreed || p.recovers || c.size == 1 || call.Err != nil:
		return false
	case call.Form == backend.Persistent || call.Form == backend.Nonblocking && c.near.graph == 0:
		return false
	}
	return !call.Neighbors.Repeated || !p.quirks.has(quirkRepeatedEdges)
}

// onGraph returns the communicator for the library's call. For a neighborhood collective that is a graph, which the
// first such call makes. For any other it is on.
func (c *comm) onGraph(on libmpi.Comm, call *backend.Call) (libmpi.Comm, error) {
	if !call.Coll.Neighbor() {
		return on, nil
	}
	if c.near.graph == 0 {
		p, n := call.Neighbors, newNeighborhood(call.Neighbors)
		ranks := func(of, numbers []int) (all []int32) {
			for _, i := range numbers {
				all = append(all, int32(of[i]))
			}
			return all
		}
		var code libmpi.Code
		if n.graph, code = c.data.Graph(ranks(p.Sources, n.recvs), ranks(p.Destinations, n.sends)); code != 0 {
			return 0, c.ended(code, call)
		}
		c.near = n
	}
	return c.near.graph, nil
}

// newNeighborhood returns a neighborhood whose graph is still to be made.
func newNeighborhood(p *backend.Neighbors) (n neighborhood) {
	n.sends, n.recvs = edges(p.Destinations, 0), edges(p.Sources, 0)
	if p.Cart { // if both neighbors are the same rank, it sends down the block that arrives from above
		n.recvs = edges(p.Sources, 1)
	}
	for i := range n.counts {
		n.counts[i] = make([]int, max(len(n.sends), len(n.recvs)))
	}
	return n
}

// edges returns the numbers of the neighbors that are ranks: in order, or with swap 1 in pairs from back to front.
func edges(of []int, swap int) (numbers []int) {
	for i := range of {
		if i ^= swap; of[i] != backend.ProcNull {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// translate fills in the library's call. The library is always given counts.
func (n *neighborhood) translate(call *backend.Call, a *libmpi.Coll) {
	size := call.Type.Size
	a.Size = len(n.counts[0])
	fill := func(counts, displs []int, edges []int, whole, of int, ownCounts, ownDispls []int) {
		m := whole / size / max(of, 1)
		for k, i := range edges {
			if counts[k], displs[k] = m, i*m; ownCounts != nil {
				counts[k], displs[k] = ownCounts[i], ownDispls[i]
			}
		}
	}
	a.RecvCounts, a.RecvDispls = n.counts[2], n.counts[3]
	fill(a.RecvCounts, a.RecvDispls, n.recvs, len(call.Recv), len(call.Neighbors.Sources), call.RecvCounts, call.RecvDispls)
	switch call.Coll {
	case backend.NeighborAllgather, backend.NeighborAllgatherv:
		a.Coll, a.Count = int(backend.NeighborAllgatherv), len(call.Send)/size
	default:
		a.Coll, a.SendCounts, a.SendDispls = int(backend.NeighborAlltoallv), n.counts[0], n.counts[1]
		fill(a.SendCounts, a.SendDispls, n.sends, len(call.Send), len(call.Neighbors.Destinations), call.SendCounts, call.SendDispls)
	}
}

// hasNeighbors reports whether the library has the neighborhood collectives for counts of any size.
func hasNeighbors() bool {
	return !slices.ContainsFunc([]string{"MPI_Neighbor_allgatherv_c", "MPI_Neighbor_alltoallv_c", "MPI_Ineighbor_allgatherv_c", "MPI_Ineighbor_alltoallv_c"},
		func(f string) bool { return !libmpi.Has(f) })
}
