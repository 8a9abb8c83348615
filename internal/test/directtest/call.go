package directtest

import (
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// call makes rank r's call, given all ranks' inputs.
func (t *Trial) call(r int, in [][]byte) *backend.Call {
	c := &backend.Call{Coll: t.Coll, Root: t.Root, Type: t.Op.Type, Count: t.Count}
	b := &builder{Trial: t, call: c, rank: r, in: in, size: t.Op.Type.Size}
	switch t.Coll {
	case backend.Barrier:
		c.Type, c.Count = nil, 0
	case backend.Bcast:
		have, want := t.buffer(t.Count)
		if r == t.Root {
			copy(have, in[r])
		}
		copy(want, in[t.Root])
		c.Recv = have
	case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
		c.Op = t.Op
		b.reduction()
	case backend.Gather, backend.Gatherv, backend.Allgather, backend.Allgatherv:
		b.gather()
	case backend.Scatter, backend.Scatterv:
		b.scatter()
	case backend.Alltoall, backend.Alltoallv:
		b.alltoall()
	}
	return c
}

type builder struct {
	*Trial
	call *backend.Call
	rank int
	in   [][]byte
	size int // of an element
}

// part returns elements of a rank's input.
func (b *builder) part(rank, at, n int) []byte { return b.in[rank][at*b.size : (at+n)*b.size] }

// send gives the call a send buffer with the rank's input, which must stay.
func (b *builder) send() {
	have, want := b.buffer(len(b.in[b.rank]) / b.size)
	copy(have, b.in[b.rank])
	copy(want, b.in[b.rank])
	b.call.Send = have
}

// fold combines the vectors of ranks lo to hi-1, from the left.
func (b *builder) fold(lo, hi int) []byte {
	acc := append([]byte(nil), b.in[lo]...)
	for r := lo + 1; r < hi; r++ {
		next := make([]byte, len(acc))
		b.Op.Apply(next, acc, b.in[r])
		acc = next
	}
	return acc
}

func (b *builder) reduction() {
	c, r, n := b.call, b.rank, b.Ranks
	inPlace := b.InPlace && (b.Coll != backend.Reduce || r == b.Root)
	var result []byte
	switch b.Coll {
	case backend.Scan:
		result = b.fold(0, r+1)
	case backend.Exscan:
		if r > 0 {
			result = b.fold(0, r)
		}
	case backend.ReduceScatterBlock:
		result = b.fold(0, n)[r*b.Count*b.size : (r+1)*b.Count*b.size]
	case backend.ReduceScatter:
		c.RecvCounts, c.Count = b.lengths(b.share), b.total()
		at := 0
		for i := range r {
			at += b.share(i)
		}
		result = b.fold(0, n)[at*b.size : (at+b.share(r))*b.size]
	default:
		result = b.fold(0, n)
	}
	if !inPlace {
		b.send()
		if b.Coll == backend.Reduce && r != b.Root {
			return
		}
		room := len(result) / b.size
		if b.Coll == backend.Exscan {
			room = b.Count
		}
		have, want := b.buffer(room)
		copy(want, result)
		c.Recv = have
		return
	}
	have, want := b.buffer(len(b.in[r]) / b.size)
	copy(have, b.in[r])
	copy(want, b.in[r])
	copy(want, result) // the rest of a longer input stays, though MPI leaves it open
	c.InPlace, c.Recv = true, have
}

func (b *builder) gather() {
	c, r, n := b.call, b.rank, b.Ranks
	all := b.Coll == backend.Allgather || b.Coll == backend.Allgatherv
	counts := b.lengths(func(int) int { return b.Count })
	displs := b.lengths(func(i int) int { return i * b.Count })
	room := n * b.Count
	if b.Coll == backend.Gatherv || b.Coll == backend.Allgatherv {
		counts = b.lengths(b.share)
		displs, room = spread(counts)
		c.Count = 0
		if all {
			c.Count = b.total()
		}
		if all || r == b.Root {
			c.RecvCounts, c.RecvDispls = counts, displs
		}
	}
	receives := all || r == b.Root
	if !receives || !b.InPlace {
		b.send()
	}
	if !receives {
		return
	}
	have, want := b.buffer(room)
	for i := range n {
		copy(want[displs[i]*b.size:], b.part(i, 0, counts[i]))
	}
	c.Recv = have
	if b.InPlace {
		c.InPlace = true
		copy(have[displs[r]*b.size:], b.part(r, 0, counts[r]))
	}
}

func (b *builder) scatter() {
	c, r, n := b.call, b.rank, b.Ranks
	counts := b.lengths(func(int) int { return b.Count })
	displs := b.lengths(func(i int) int { return i * b.Count })
	room := n * b.Count
	if b.Coll == backend.Scatterv {
		counts = b.lengths(b.share)
		displs, room = spread(counts)
		c.Count = 0
		if r == b.Root {
			c.SendCounts, c.SendDispls = counts, displs
		}
	}
	at := 0 // of rank r's part in the root's contiguous input
	for i := range r {
		at += counts[i]
	}
	if r == b.Root {
		have, want := b.buffer(room)
		from := 0
		for i := range n {
			part := b.part(r, from, counts[i])
			copy(have[displs[i]*b.size:], part)
			copy(want[displs[i]*b.size:], part)
			from += counts[i]
		}
		c.Send = have
		if b.InPlace {
			c.InPlace = true
			return
		}
	}
	have, want := b.buffer(counts[r])
	copy(want, b.part(b.Root, at, counts[r]))
	c.Recv = have
}

func (b *builder) alltoall() {
	c, r, n := b.call, b.rank, b.Ranks
	length := func(from, to int) int { return b.Count }
	layout := func(rank int) (counts, displs []int, room int) {
		counts = b.lengths(func(i int) int { return length(rank, i) })
		return counts, b.lengths(func(i int) int { return i * b.Count }), n * b.Count
	}
	if b.Coll == backend.Alltoallv {
		length = b.pair
		layout = func(rank int) (counts, displs []int, room int) {
			counts = b.lengths(func(i int) int { return length(rank, i) })
			displs, room = spread(counts)
			return counts, displs, room
		}
		c.Count = 0
	}
	counts, displs, room := layout(r)
	if b.Coll == backend.Alltoallv {
		c.RecvCounts, c.RecvDispls = counts, displs
		if !b.InPlace {
			c.SendCounts, c.SendDispls = slices.Clone(counts), slices.Clone(displs)
		}
	}
	// source returns what rank i has for rank j: its input has the parts in order.
	source := func(i, j int) []byte {
		at := 0
		for k := range j {
			at += length(i, k)
		}
		return b.part(i, at, length(i, j))
	}
	fill := func(dst []byte, part func(i int) []byte) {
		for i := range n {
			copy(dst[displs[i]*b.size:], part(i))
		}
	}
	outgoing := func(i int) []byte { return source(r, i) }
	incoming := func(i int) []byte { return source(i, r) }
	if !b.InPlace {
		have, want := b.buffer(room)
		fill(have, outgoing)
		fill(want, outgoing)
		c.Send = have
	}
	have, want := b.buffer(room)
	fill(want, incoming)
	c.Recv = have
	if b.InPlace {
		c.InPlace = true
		fill(have, outgoing)
	}
}
