package coll

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
)

// The operations of the tests. Elements are 8 bytes.
var word = &backend.Datatype{Kind: backend.Uint64, Size: 8, Name: "uint64", ID: uint32(backend.Uint64)}

func wordOp(commutative bool, f func(a, b uint64) uint64) *backend.Op {
	return &backend.Op{Type: word, Commutative: commutative, Apply: func(dst, a, b []byte) {
		for i := 0; i < len(dst); i += 8 {
			binary.LittleEndian.PutUint64(dst[i:], f(binary.LittleEndian.Uint64(a[i:]), binary.LittleEndian.Uint64(b[i:])))
		}
	}}
}

// mix is neither associative nor commutative: its result tells in which order
// and with which brackets the operands were combined.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9E3779B97F4A7C15, bits.RotateLeft64(b, 23)|1)
	return hi ^ lo + a
}

// affine is the composition of x -> p x + q modulo 2^32, p and q in the halves
// of a word: associative, not commutative.
func affine(a, b uint64) uint64 {
	p, q := uint32(a>>32), uint32(a)
	r, s := uint32(b>>32), uint32(b)
	return uint64(r*p)<<32 | uint64(r*q+s)
}

func sum(a, b uint64) uint64 { return a + b }

// float adds float64.
func float(a, b uint64) uint64 {
	return math.Float64bits(math.Float64frombits(a) + math.Float64frombits(b))
}

// treeOf is the tree order as its definition has it. It uses up x.
func treeOf(x []uint64, f func(a, b uint64) uint64) uint64 {
	p := 1
	for 2*p <= len(x) {
		p *= 2
	}
	y := x[:0]
	for rem := len(x) - p; rem > 0; rem-- {
		y = append(y, f(x[0], x[1]))
		x = x[2:]
	}
	y = append(y, x...)
	for len(y) > 1 {
		z := y[:0]
		for i := 0; i < len(y); i += 2 {
			z = append(z, f(y[i], y[i+1]))
		}
		y = z
	}
	return y[0]
}

// ringOf is the ring order of an element of chunk c.
func ringOf(x []uint64, c int, f func(a, b uint64) uint64) uint64 {
	n := len(x)
	acc := x[(c+1)%n]
	for i := 2; i <= n; i++ {
		acc = f(acc, x[(c+i)%n])
	}
	return acc
}

// prefixOf is the order of a scan: x are the operands of ranks 0 to r-1, and of
// r if own. It uses up x.
func prefixOf(x []uint64, own bool, f func(a, b uint64) uint64) uint64 {
	r := len(x)
	var acc uint64
	has := own
	if own {
		r--
		acc = x[r]
	}
	for k := 1; k <= r; k *= 2 {
		if r&k == 0 {
			continue
		}
		// The k ranks of this bit end where the higher bits of r do.
		end := r &^ (k - 1)
		block := treeOf(x[end-k:end], f)
		if has {
			acc = f(block, acc)
		} else {
			acc, has = block, true
		}
	}
	return acc
}

// chunks returns the chunk of each of count elements split over n.
func chunks(count, n int) []int {
	c := make([]int, 0, count)
	for i := range n {
		m := count / n
		if i < count%n {
			m++
		}
		c = append(c, slices.Repeat([]int{i}, m)...)
	}
	return c
}

// trial is one collective of n ranks with its buffers and what they should hold
// afterwards.
type trial struct {
	coll        backend.Coll
	n           int
	count       int // as in backend.Call
	elem        int // bytes
	root        int
	inPlace     []bool
	counts      []int // v-forms; Alltoallv: n*n, by source and destination
	f           func(a, b uint64) uint64
	commutative bool
	ringChunk   int
	packed      bool // v-forms: no gaps between blocks
	degree      int  // neighborhood collectives: with the next ranks, this many; 0: random
	nodes       *Nodes

	op     *backend.Op
	calls  []*backend.Call
	before [][]byte // Send
	want   [][]byte // Recv
}

func words(b []byte) []uint64 {
	w := make([]uint64, len(b)/8)
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w
}

func wordBytes(w []uint64) []byte {
	b := make([]byte, 0, 8*len(w))
	for _, x := range w {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}

// random returns n bytes; words of them are also ordinary float64, of either
// sign and of magnitudes from 2^-28 to 2^28.
func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, (n+7)&^7)
	for i := 0; i < n; i += 8 {
		x := rng.Uint64()
		exp := 1023 - 28 + (x>>52)%57
		binary.LittleEndian.PutUint64(b[i:], x&(1<<63|1<<52-1)|exp<<52)
	}
	return b[:n:n]
}

// layout returns the places of blocks in a random order with gaps, or, of a
// packed trial, one after the other, and the length of the whole, in elements.
func (tr *trial) layout(rng *rand.Rand, counts []int) (d []int, total int) {
	d = make([]int, len(counts))
	if tr.packed {
		for i, m := range counts {
			d[i] = total
			total += m
		}
		return d, total
	}
	for _, i := range rng.Perm(len(counts)) {
		total += rng.IntN(3)
		d[i] = total
		total += counts[i]
	}
	return d, total
}

// isInPlace reports whether rank r's part of the trial is in place.
func (tr *trial) isInPlace(r int) bool {
	switch tr.coll {
	case backend.Barrier, backend.Bcast, backend.NeighborAllgather, backend.NeighborAllgatherv, backend.NeighborAlltoall, backend.NeighborAlltoallv:
		return false
	case backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
		return r == tr.root && tr.inPlace[r]
	case backend.Exscan:
		return r != 0 && tr.inPlace[r]
	}
	return tr.inPlace[r]
}

// prepare makes the calls and works out the results.
func (tr *trial) prepare(rng *rand.Rand) {
	elem, n := tr.elem, tr.n
	tr.calls, tr.want = make([]*backend.Call, n), make([][]byte, n)
	dt := word
	if elem != 8 {
		dt = &backend.Datatype{Kind: backend.Opaque, Size: elem, Name: "opaque", ID: 1 << 20}
	}
	if tr.f != nil {
		tr.op = wordOp(tr.commutative, tr.f)
	}
	input := make([][]byte, n) // each rank's contribution, without gaps
	for r := range n {
		c := &backend.Call{Coll: tr.coll, Root: -1, Count: tr.count, Type: dt, Op: tr.op, InPlace: tr.isInPlace(r)}
		tr.calls[r] = c
		switch tr.coll {
		case backend.Bcast, backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
			c.Root = tr.root
		}
		if tr.coll == backend.Barrier {
			c.Count, c.Type = 0, nil
		}
	}
	row := func(r int) []int { return tr.counts[r*n : (r+1)*n] }
	col := func(r int) (c []int) {
		for i := range n {
			c = append(c, tr.counts[i*n+r])
		}
		return c
	}
	// place gives rank r a Recv of total elements that its input of off
	// elements into it belongs to if in place, and else a Send.
	place := func(r, total, off int) {
		c := tr.calls[r]
		c.Recv = random(rng, total*elem)
		if c.InPlace {
			copy(c.Recv[off*elem:], input[r])
		} else {
			c.Send = slices.Clone(input[r])
		}
		tr.want[r] = slices.Clone(c.Recv)
	}
	switch tr.coll {
	case backend.Barrier:
	case backend.Bcast:
		for r := range n {
			input[r] = random(rng, tr.count*elem)
			tr.calls[r].Recv = input[r]
		}
		for r := range n {
			tr.want[r] = slices.Clone(input[tr.root])
		}
	case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
		tr.prepareReduction(rng, input, place)
	case backend.Gather, backend.Allgather:
		for r := range n {
			input[r] = random(rng, tr.count*elem)
		}
		all := slices.Concat(input...)
		for r := range n {
			if r == tr.root || tr.coll == backend.Allgather {
				place(r, n*tr.count, r*tr.count)
				tr.want[r] = all
			} else {
				tr.calls[r].Send = slices.Clone(input[r])
			}
		}
	case backend.Gatherv, backend.Allgatherv:
		for r := range n {
			input[r] = random(rng, tr.counts[r]*elem)
		}
		for r := range n {
			if r != tr.root && tr.coll == backend.Gatherv {
				tr.calls[r].Send = slices.Clone(input[r])
				continue
			}
			d, total := tr.layout(rng, tr.counts)
			tr.calls[r].RecvCounts, tr.calls[r].RecvDispls = tr.counts, d
			place(r, total, d[r])
			for i := range n {
				copy(tr.want[r][d[i]*elem:], input[i])
			}
		}
	case backend.Scatter, backend.Scatterv:
		root := tr.calls[tr.root]
		counts := slices.Repeat([]int{tr.count}, n)
		d := make([]int, n)
		for i := range d {
			d[i] = i * tr.count
		}
		total := n * tr.count
		if tr.coll == backend.Scatterv {
			counts = tr.counts
			d, total = tr.layout(rng, counts)
			root.SendCounts, root.SendDispls = counts, d
		}
		root.Send = random(rng, total*elem)
		for r, c := range tr.calls {
			if !c.InPlace {
				c.Recv = random(rng, counts[r]*elem)
				tr.want[r] = slices.Clone(root.Send[d[r]*elem : (d[r]+counts[r])*elem])
			}
		}
	case backend.Alltoall, backend.Alltoallv:
		if tr.coll == backend.Alltoall {
			tr.counts = slices.Repeat([]int{tr.count}, n*n)
			tr.packed = true
		}
		for i := range tr.counts {
			// A rank in place sends as much as it receives.
			if a, b := i/n, i%n; tr.isInPlace(a) || tr.isInPlace(b) {
				tr.counts[i] = tr.counts[b*n+a]
			}
		}
		blocks := make([][]byte, n*n)
		for i, m := range tr.counts {
			blocks[i] = random(rng, m*elem)
		}
		for r, c := range tr.calls {
			sd, st := tr.layout(rng, row(r))
			rd, rt := tr.layout(rng, col(r))
			c.Recv = random(rng, rt*elem)
			if c.InPlace {
				for i := range n {
					copy(c.Recv[rd[i]*elem:], blocks[r*n+i])
				}
			} else {
				c.Send = random(rng, st*elem)
				for i := range n {
					copy(c.Send[sd[i]*elem:], blocks[r*n+i])
				}
			}
			tr.want[r] = slices.Clone(c.Recv)
			for i := range n {
				copy(tr.want[r][rd[i]*elem:], blocks[i*n+r])
			}
			if tr.coll == backend.Alltoallv {
				c.RecvCounts, c.RecvDispls = col(r), rd
				if !c.InPlace {
					c.SendCounts, c.SendDispls = row(r), sd
				}
			}
		}
	default:
		tr.prepareNeighbors(rng)
	}
	tr.before = nil
	for _, c := range tr.calls {
		tr.before = append(tr.before, slices.Clone(c.Send))
	}
}

// prepareReduction is prepare for the reductions.
func (tr *trial) prepareReduction(rng *rand.Rand, input [][]byte, place func(r, total, off int)) {
	n := tr.n
	total := tr.count
	if tr.coll == backend.ReduceScatterBlock {
		total *= n
		tr.counts = slices.Repeat([]int{tr.count}, n)
	}
	vecs := make([][]uint64, n)
	for r := range n {
		input[r] = random(rng, total*8)
		vecs[r] = words(input[r])
	}
	x := make([]uint64, 0, n)
	column := func(i, upTo int) []uint64 {
		x = x[:0]
		for _, v := range vecs[:upTo] {
			x = append(x, v[i])
		}
		return x
	}
	result := make([]uint64, total)
	chunk := chunks(total, n)
	ring := tr.commutative && n&(n-1) != 0 && total*8 >= n*tr.ringChunk
	for i := range result {
		if ring {
			result[i] = ringOf(column(i, n), chunk[i], tr.f)
		} else {
			result[i] = treeOf(column(i, n), tr.f)
		}
	}
	off := 0
	for r := range n {
		c := tr.calls[r]
		switch tr.coll {
		case backend.Reduce:
			if r != tr.root {
				c.Send = slices.Clone(input[r])
				continue
			}
			fallthrough
		case backend.Allreduce:
			place(r, total, 0)
			tr.want[r] = wordBytes(result)
		case backend.ReduceScatterBlock, backend.ReduceScatter:
			if tr.coll == backend.ReduceScatter {
				c.RecvCounts = tr.counts
			}
			if m := tr.counts[r]; c.InPlace {
				place(r, total, 0)
			} else {
				place(r, m, 0)
			}
			copy(tr.want[r], wordBytes(result[off:off+tr.counts[r]]))
			off += tr.counts[r]
		case backend.Scan, backend.Exscan:
			if r == 0 && tr.coll == backend.Exscan {
				c.Send = slices.Clone(input[r])
				continue
			}
			place(r, total, 0)
			for i := range total {
				own := tr.coll == backend.Scan
				operands := column(i, r)
				if own {
					operands = column(i, r+1)
				}
				binary.LittleEndian.PutUint64(tr.want[r][8*i:], prefixOf(operands, own, tr.f))
			}
		}
	}
}
