package shm

import (
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/coll"
)

// peers is access to the other ranks' data during a collective.
type peers struct {
	s       *collective
	call    *backend.Call
	scratch []byte
}

// input is what this rank contributes to a call.
func input(call *backend.Call) []byte {
	if call.InPlace && call.Coll != backend.Scatter && call.Coll != backend.Scatterv || call.Coll == backend.Bcast {
		return call.Recv
	}
	return call.Send
}

// post puts this rank's data on its board if they are few.
func (p *peers) post(to *post, call *backend.Call) {
	b := input(call)
	switch {
	case len(b) <= len(to.small):
		copy(to.small[:], b)
	case len(b) <= boardData:
		copy(to.data[:], b)
	}
}

// on returns n bytes at off of what a rank that has total bytes posted.
func (p *peers) on(r, total, off, n int) []byte {
	b := &p.s.c.boards[r].post[p.s.turn]
	if total <= len(b.small) {
		return b.small[off : off+n]
	}
	return b.data[off : off+n]
}

// Load implements coll.Loader for vectors on the boards. They are copied first:
// lines of another core's cache come faster in one sweep than with arithmetic
// between them.
func (p *peers) Load(rank, lo, hi int, scratch []byte) ([]byte, error) {
	size := p.call.Type.Size
	own := input(p.call)
	if rank == p.s.c.rank {
		return own[lo*size : hi*size], nil
	}
	copy(scratch, p.on(rank, len(own), lo*size, (hi-lo)*size))
	return scratch, nil
}

// complete does this rank's part once all ranks make the same call.
func (p *peers) complete(b *backend.Bound, call *backend.Call) (bool, error) {
	c := p.s.c
	switch call.Coll {
	case backend.Barrier:
		return true, nil
	case backend.Allreduce:
		if len(call.Recv) <= boardData {
			p.call = call
			return true, p.reduce(coll.NewOrder(len(c.world), call.Count, call.Type.Size, call.Op.Commutative), call.Recv)
		}
	}
	return false, nil
}

// reduce evaluates a whole vector in an order.
func (p *peers) reduce(o coll.Order, dst []byte) error {
	if need := o.ScratchBlocks() * len(dst); len(p.scratch) < need {
		p.scratch = make([]byte, max(need, 4*boardData))
	}
	return o.Eval(p.call.Op, 0, p.call.Count, dst, p, p.scratch[:o.ScratchBlocks()*len(dst)])
}
