package comm

import (
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/view"
)

// GraphCall is the type of the collectives with which GraphCreate compares the edges.
var GraphCall = callType("GraphCreate")

// SetNeighbors stores the neighbors of this rank in a new communicator.
func (c *Comm) SetNeighbors(p *backend.Neighbors) { c.core.neighbors = p }

// GraphCreate makes a communicator with the same ranks for collectives along the edges of a graph: from
// each source to this rank, and from this rank to each destination. bad is an argument error.
func (c *Comm) GraphCreate(sources, destinations []int, bad error) (*Comm, error) {
	const op = "graph"
	if err := c.take(); err != nil {
		return nil, c.failed(op, err)
	}
	c = c.withDeadline()
	err := c.compareEdges(sources, destinations, bad)
	c.core.life.leave()
	if err != nil {
		return nil, c.failed(op, err)
	}
	d, err := c.Split(GraphCall, op, 0, c.Rank(), 0, nil)
	if err == nil {
		d.SetNeighbors(&backend.Neighbors{Sources: sources, Destinations: destinations})
	}
	return d, err
}

// compareEdges checks that the two ranks of each edge give it equally often. The caller has taken the communicator.
func (c *Comm) compareEdges(sources, destinations []int, bad error) error {
	k := c.core
	out, in, want := make([]int64, k.size), make([]int64, k.size), make([]int64, k.size)
	if bad == nil {
		for _, r := range destinations {
			out[r]++
		}
		for _, r := range sources {
			want[r]++
		}
	}
	k.call = backend.Call{Coll: backend.Alltoall, Root: -1, Type: GraphCall, Count: 1, Send: view.Bytes(out), Recv: view.Bytes(in), Err: bad}
	if err := k.do(c.bound); err != nil {
		return err
	}
	var differ error
	for r := range in {
		if in[r] != want[r] && differ == nil {
			differ = fault(backend.ErrMismatch, "rank %d has rank %d among its destinations %s, and rank %d has rank %d among its sources %s; want the same",
				r, k.rank, times(in[r]), k.rank, r, times(want[r]))
		}
	}
	one, err := c.join(GraphCall, differ)
	if one != nil && err == nil {
		err = one.Err
		k.bc.Break(err)
	}
	return err
}

func times(n int64) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprint(n, " times")
}

// checkNeighbors checks a neighborhood collective. Neighbors compare the lengths of their blocks when they
// exchange them. A rank without destinations does not use send, and a rank without sources does not use recv.
func (k *core) checkNeighbors(call *backend.Call) {
	p := k.neighbors
	if p == nil {
		reject(call, backend.ErrComm, "the communicator has no neighbors; CartCreate and GraphCreate make one that has")
		return
	}
	call.Neighbors, call.Count = p, 0
	if len(p.Destinations) == 0 {
		call.Send = nil
	}
	if len(p.Sources) == 0 {
		call.Recv = nil
	}
	ok := true
	switch call.Coll {
	case backend.NeighborAllgather:
		ok = k.checkNeighborBlocks(call, 1)
	case backend.NeighborAlltoall:
		ok = k.checkNeighborBlocks(call, len(p.Destinations))
	case backend.NeighborAlltoallv:
		ok = k.checkVector(call, "send", call.Send, call.SendCounts, &call.SendDispls, false)
		fallthrough
	case backend.NeighborAllgatherv:
		ok = ok && k.checkVector(call, "recv", call.Recv, call.RecvCounts, &call.RecvDispls, true)
	}
	if ok && view.Overlap(call.Send, call.Recv) {
		reject(call, backend.ErrBuffer, "send and recv overlap; a neighborhood collective cannot work in place")
	}
}

// checkNeighborBlocks checks buffers of equally long blocks: send has out blocks, and recv one for each source.
func (k *core) checkNeighborBlocks(call *backend.Call, out int) bool {
	for _, b := range [...]struct {
		name  string
		bytes []byte
		n     int
	}{{"send", call.Send, out}, {"recv", call.Recv, len(call.Neighbors.Sources)}} {
		if n := elems(call, b.bytes); b.n > 0 && n%b.n != 0 {
			_, per := k.blocks(call, b.name)
			return reject(call, backend.ErrCount, "%s has %d elements, want a multiple of %d, one block per %s", b.name, n, b.n, per)
		}
	}
	if len(call.Neighbors.Destinations) == 0 || len(call.Neighbors.Sources) == 0 {
		return true
	}
	return checkInput(call) && checkBytes(call, "recv", call.Recv, len(call.Neighbors.Sources), len(call.Send)/out)
}
