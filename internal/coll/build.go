package coll

import (
	"fmt"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// Build returns rank's schedule of a collective call among size ranks.
//
// The caller has checked the call: its lengths, counts and displacements fit. Build does
// not keep it. The schedule depends on Coll, InPlace, Root, the op's Commutative, the
// type's Size, Count, the counts and displacements, Neighbors, and for Gatherv, Scatterv
// and neighborhood collectives on the lengths of Send and Recv. It does not depend on the contents or addresses of the
// buffers. The choice of the algorithm depends only on the number of ranks and on what
// the call's fingerprint makes equal on all ranks.
//
// On several nodes, all ranks pass equal nodes. The schedule then sends fewer messages or bytes from node to node, and
// reductions combine their operands in the same order. On one node, nodes is nil.
//
// For a call with an argument error Build returns that error.
func Build(c *backend.Call, rank, size int, nodes *Nodes) (*Schedule, error) {
	return build(c, rank, size, nodes, &defaults)
}

// BuildAs is Build with the named algorithm, one of those that [Algorithms] returns. All ranks
// name the same one.
func BuildAs(algorithm string, c *backend.Call, rank, size int, nodes *Nodes) (*Schedule, error) {
	b, err := prepare(c, rank, size, nodes, &defaults)
	if err != nil {
		return nil, err
	}
	for _, r := range b.able(b.shape()) {
		if r.name == algorithm {
			r.build(b)
			return b.schedule(r.name), nil
		}
	}
	return nil, fault("%s cannot do this %v", algorithm, c.Coll)
}

// Algorithms returns the names of the algorithms that can do rank's call, the one that Build chooses
// first. They combine operands in the same order. A single rank has none.
func Algorithms(c *backend.Call, rank, size int, nodes *Nodes) ([]string, error) {
	b, err := prepare(c, rank, size, nodes, &defaults)
	if err != nil || size == 1 {
		return nil, err
	}
	var names []string
	if r := b.choose(); r != nil {
		names = append(names, r.name)
	}
	for _, r := range b.able(b.shape()) {
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names, nil
}

func build(c *backend.Call, rank, size int, nodes *Nodes, lim *limits) (*Schedule, error) {
	b, err := prepare(c, rank, size, nodes, lim)
	if err != nil {
		return nil, err
	}
	if size == 1 && !c.Coll.Neighbor() {
		alone(b)
		return b.schedule("alone"), nil
	}
	r := b.choose()
	if r == nil {
		return nil, fault("no algorithm for %v", c.Coll)
	}
	r.build(b)
	return b.schedule(r.name), nil
}

// prepare returns the builder for a call that has no argument error.
func prepare(c *backend.Call, rank, size int, nodes *Nodes, lim *limits) (*builder, error) {
	if c.Err != nil {
		return nil, c.Err
	}
	if nodes != nil && len(nodes.of) != size {
		return nil, fault("%d ranks on nodes for %d", size, len(nodes.of))
	}
	b := newBuilder(c, rank, size, lim)
	b.nodes = nodes
	return b, nil
}

// able returns the rules whose needs a call meets.
func (b *builder) able(s shape) (able []*rule) {
	for i := range placedRules {
		if r := &placedRules[i]; b.nodes != nil && r.fits(b.c.Coll, s) {
			able = append(able, &r.rule)
		}
	}
	for i := range rules {
		if r := &rules[i]; r.fits(b.c.Coll, s) {
			able = append(able, r)
		}
	}
	return able
}

// choose returns the rule of the call's algorithm, nil if there is none.
func (b *builder) choose() *rule {
	s := b.shape()
	if b.nodes != nil {
		for i := range placedRules {
			if r := &placedRules[i]; r.fits(b.c.Coll, s) && (r.when == nil || r.when(s)) {
				return &r.rule
			}
		}
	}
	return choose(b.c.Coll, s)
}

func newBuilder(c *backend.Call, rank, size int, lim *limits) *builder {
	b := &builder{c: c, rank: rank, n: size, lim: lim}
	if c.Type != nil {
		b.size = c.Type.Size
	}
	if c.Coll == backend.Bcast {
		b.vec = b.elems(Recv, 0, c.Count)
	}
	count := c.Count
	switch c.Coll {
	case backend.ReduceScatterBlock:
		count *= size
		fallthrough
	case backend.Reduce, backend.Allreduce, backend.ReduceScatter:
		b.order = newOrder(size, count, b.size, c.Op.Commutative, lim.ringChunk)
	}
	return b
}

// shape returns the properties by which the call's algorithm is chosen.
func (b *builder) shape() shape {
	s := shape{n: b.n, count: b.c.Count, bytes: b.c.Count * b.size, order: b.order, nodes: b.nodes, link: b.lim.far, limits: b.lim}
	switch b.c.Coll {
	case backend.ReduceScatterBlock, backend.Allgather:
		s.bytes *= b.n
	}
	return s
}

func fault(format string, args ...any) error {
	return &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf(format, args...)}
}

// alone builds every collective of one rank: its input is the result.
func alone(b *builder) {
	c := b.c
	if c.InPlace {
		return
	}
	src, dst := b.elems(Send, 0, c.Count), b.elems(Recv, 0, c.Count)
	switch c.Coll {
	case backend.Barrier, backend.Bcast, backend.Exscan:
		return
	case backend.Gatherv:
		src = b.elems(Send, 0, c.RecvCounts[0])
		dst = Region{Recv, c.RecvDispls[0] * b.size, src.N}
	case backend.Allgatherv:
		dst.Off = c.RecvDispls[0] * b.size
	case backend.Scatterv:
		dst = b.elems(Recv, 0, c.SendCounts[0])
		src = Region{Send, c.SendDispls[0] * b.size, dst.N}
	case backend.Alltoallv:
		src = b.elems(Send, c.SendDispls[0], c.SendDispls[0]+c.SendCounts[0])
		dst = Region{Recv, c.RecvDispls[0] * b.size, src.N}
	}
	b.copy(dst, src)
}
