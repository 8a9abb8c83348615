package coll

import (
	"fmt"
	"math/bits"

	"github.com/cohort-hpc/cohort/backend"
)

// BlockBytes is a good size for the blocks of scratch memory that [Order.Eval] gets: a few
// of them fit in a core's first-level cache together with the operands.
const BlockBytes = 8 << 10

// ringChunk is the smallest chunk, in bytes, for which the ring is faster. With a start-up
// time a and a time per byte b, folding n ranks to a power of two costs about 2bm more for
// a vector of m bytes, and the ring's steps cost 2an more. So the ring is faster from m =
// n(a/b) on, and a/b is near 8 KiB for sockets and for shared memory.
const ringChunk = 8 << 10

// Order is the order in which a reduction combines its operands. It depends only on the
// number of ranks, the length, and whether the operation commutes.
//
// Tree: with p the largest power of two not above n and rem = n-p, the operands of ranks
// (0,1), (2,3), ... (2rem-2, 2rem-1) are combined first. A perfect binary tree over
// neighbors then combines the p values. The operand of the lower ranks is always the left
// one, which operations that do not commute need.
//
// Ring: for commutative operations, if n is not a power of two and the vector has at least
// 8 KiB per rank. The vector is split evenly into n chunks (the first count mod n have one
// element more). Chunk c is combined one rank after the other, ((x[c+1] op x[c+2]) op ...)
// op x[c], ranks modulo n.
//
// Prefix ([ScanOrder]): begins with rank r's operand, or with nothing for an exclusive
// scan. For each bit that is set in r, from the lowest, one block of ranks is combined
// from the left: for bit k the 2^k ranks below those combined so far, themselves combined
// by a perfect binary tree.
//
// The zero Order is not valid.
type Order struct {
	kind     orderKind
	n        int // ranks; for prefixes, the rank whose prefix it is
	count    int
	elemSize int
}

type orderKind uint8

const (
	treeOrder orderKind = iota + 1
	ringOrder
	scanOrder
	exscanOrder
)

// NewOrder returns the order of Reduce, Allreduce, ReduceScatterBlock and
// ReduceScatter for n ranks and vectors of count elements of elemSize bytes.
// The count is that of the whole vector, also for the last two.
func NewOrder(n, count, elemSize int, commutative bool) Order {
	return newOrder(n, count, elemSize, commutative, ringChunk)
}

func newOrder(n, count, elemSize int, commutative bool, ringChunk int) Order {
	o := Order{treeOrder, n, count, elemSize}
	if commutative && !isPow2(n) && count*elemSize >= n*ringChunk {
		o.kind = ringOrder
	}
	return o
}

// ScanOrder returns the order of rank's result of Scan, or of Exscan if
// exclusive.
func ScanOrder(rank, elemSize int, exclusive bool) Order {
	if exclusive {
		return Order{exscanOrder, rank, 0, elemSize}
	}
	return Order{scanOrder, rank, 0, elemSize}
}

// Ring reports whether the order is that of a ring.
func (o Order) Ring() bool { return o.kind == ringOrder }

// Loader provides the ranks' operands to Eval.
type Loader interface {
	// Load returns elements lo to hi-1 of rank's vector: the memory itself, or
	// scratch with a copy of them in it. Scratch has their length. The
	// result is only read, and does not change until Eval returns.
	Load(rank, lo, hi int, scratch []byte) ([]byte, error)
}

// ScratchBlocks returns how many blocks of scratch Eval needs: at most 2 more
// than the logarithm of the number of ranks.
func (o Order) ScratchBlocks() int {
	switch o.kind {
	case ringOrder:
		return 2
	case scanOrder, exscanOrder:
		if o.n == 0 {
			return 0
		}
		return bits.Len(uint(o.n)) + 1
	}
	switch {
	case o.n == 1:
		return 0
	case isPow2(o.n):
		return bits.Len(uint(o.n))
	}
	return bits.Len(uint(o.n)) + 1
}

// Eval sets dst to the combination of elements lo to hi-1 of all ranks'
// vectors in this order. Dst has their length. It works block by block; the
// blocks are as large as scratch allows, which has room for [Order.ScratchBlocks]
// of at least one element each, and BlockBytes is a good size for them. The
// exclusive prefix of rank 0 is nothing, and dst is left as it is.
//
// Dst may be elements lo to hi-1 of one of the vectors that are read: all
// operands of a block have been loaded before it is written. Otherwise dst,
// scratch and the vectors do not overlap. Eval does not allocate.
func (o Order) Eval(op *backend.Op, lo, hi int, dst []byte, l Loader, scratch []byte) error {
	blocks := o.ScratchBlocks()
	step := hi - lo
	if blocks > 0 {
		if room := len(scratch) / blocks / o.elemSize; room < step {
			step = room
		}
	}
	if len(dst) != (hi-lo)*o.elemSize || step <= 0 && lo < hi {
		return &backend.Fault{Sentinel: backend.ErrInternal, Text: fmt.Sprintf(
			"evaluating elements %d to %d of %d bytes each: destination of %d bytes, scratch of %d for %d blocks",
			lo, hi, o.elemSize, len(dst), len(scratch), blocks)}
	}
	if o.kind == treeOrder && o.n == 2 {
		return o.pair(op, lo, hi, step, dst, l, scratch)
	}
	e := evaluator{op: op, l: l, scratch: scratch}
	for lo < hi {
		end := min(lo+step, hi)
		chunk := 0
		if o.kind == ringOrder {
			// A block lies in one chunk.
			chunk = o.chunkOf(lo)
			end = min(end, split(o.count, o.n, chunk+1))
		}
		e.lo, e.hi, e.bytes = lo, end, (end-lo)*o.elemSize
		e.dst, dst = dst[:e.bytes:e.bytes], dst[e.bytes:]
		if err := e.block(o, chunk); err != nil {
			return err
		}
		lo = end
	}
	return nil
}

// pair is Eval of two ranks: nothing but loads and the operation, for the sake
// of short vectors.
func (o Order) pair(op *backend.Op, lo, hi, step int, dst []byte, l Loader, scratch []byte) error {
	for lo < hi {
		end := min(lo+step, hi)
		bytes := (end - lo) * o.elemSize
		a, err := l.Load(0, lo, end, scratch[:bytes:bytes])
		if err != nil {
			return err
		}
		b, err := l.Load(1, lo, end, scratch[bytes:2*bytes:2*bytes])
		if err != nil {
			return err
		}
		op.Apply(dst[:bytes:bytes], a, b)
		dst, lo = dst[bytes:], end
	}
	return nil
}

// chunkOf returns the chunk of the ring that element i lies in.
func (o Order) chunkOf(i int) int {
	q, r := o.count/o.n, o.count%o.n
	if long := r * (q + 1); i >= long {
		return r + (i-long)/q
	}
	return i / (q + 1)
}

// evaluator is the state of one Eval: the block [lo, hi) of the vectors that
// goes to dst, and scratch in slots of one block each.
type evaluator struct {
	op      *backend.Op
	l       Loader
	scratch []byte
	dst     []byte
	lo, hi  int
	bytes   int
}

func (e *evaluator) slot(i int) []byte { return e.scratch[i*e.bytes : (i+1)*e.bytes : (i+1)*e.bytes] }

func (e *evaluator) block(o Order, chunk int) error {
	switch o.kind {
	case ringOrder:
		return e.ring(o.n, chunk)
	case scanOrder, exscanOrder:
		return e.prefix(o.n, o.kind == exscanOrder)
	}
	if o.n == 1 {
		return e.only(0)
	}
	p := floorPow2(o.n)
	a, err := e.tree(0, p/2, o.n-p, 0)
	if err != nil {
		return err
	}
	b, err := e.tree(p/2, p/2, o.n-p, 1)
	if err != nil {
		return err
	}
	e.op.Apply(e.dst, a, b)
	return nil
}

// only sets dst to one rank's operand.
func (e *evaluator) only(rank int) error {
	x, err := e.l.Load(rank, e.lo, e.hi, e.dst)
	if err == nil && len(x) > 0 && &x[0] != &e.dst[0] {
		copy(e.dst, x)
	}
	return err
}

// tree returns the combination of virtual ranks v to v+width-1, of which the
// first rem stand for two ranks each. It uses the slots from slot on, and what
// it returns is in that slot or in the vectors.
func (e *evaluator) tree(v, width, rem, slot int) ([]byte, error) {
	var a, b []byte
	var err error
	switch {
	case width > 1:
		if a, err = e.tree(v, width/2, rem, slot); err == nil {
			b, err = e.tree(v+width/2, width/2, rem, slot+1)
		}
	case v >= rem:
		return e.l.Load(v+rem, e.lo, e.hi, e.slot(slot))
	default:
		if a, err = e.l.Load(2*v, e.lo, e.hi, e.slot(slot)); err == nil {
			b, err = e.l.Load(2*v+1, e.lo, e.hi, e.slot(slot+1))
		}
	}
	if err != nil {
		return nil, err
	}
	s := e.slot(slot)
	e.op.Apply(s, a, b)
	return s, nil
}

// ring combines a block that lies in the given chunk.
func (e *evaluator) ring(n, chunk int) error {
	acc, err := e.l.Load((chunk+1)%n, e.lo, e.hi, e.slot(0))
	if err != nil {
		return err
	}
	to := e.slot(0)
	for i := 2; i <= n; i++ {
		x, err := e.l.Load((chunk+i)%n, e.lo, e.hi, e.slot(1))
		if err != nil {
			return err
		}
		if i == n {
			to = e.dst
		}
		e.op.Apply(to, acc, x)
		acc = to
	}
	return nil
}

// prefix combines the operands of the ranks below rank, and rank's own unless
// exclusive.
func (e *evaluator) prefix(rank int, exclusive bool) error {
	if rank == 0 {
		if exclusive {
			return nil
		}
		return e.only(0)
	}
	var acc []byte
	var err error
	if !exclusive {
		if acc, err = e.l.Load(rank, e.lo, e.hi, e.slot(0)); err != nil {
			return err
		}
	}
	for left := rank; left > 0; {
		width := left & -left
		left -= width
		if acc == nil {
			if acc, err = e.tree(left, width, 0, 0); err != nil {
				return err
			}
			if left == 0 {
				copy(e.dst, acc)
			}
			continue
		}
		x, err := e.tree(left, width, 0, 1)
		if err != nil {
			return err
		}
		to := e.slot(0)
		if left == 0 {
			to = e.dst
		}
		e.op.Apply(to, x, acc)
		acc = to
	}
	return nil
}
