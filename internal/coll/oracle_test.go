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

// job is one collective of n ranks with its buffers and what they should hold
// afterwards.
type job struct {
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
// packed job, one after the other, and the length of the whole, in elements.
func (j *job) layout(rng *rand.Rand, counts []int) (d []int, total int) {
	d = make([]int, len(counts))
	if j.packed {
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

// isInPlace reports whether rank r's part of the job can be, and is to be, in place.
func (j *job) isInPlace(r int) bool {
	switch j.coll {
	case backend.Barrier, backend.Bcast, backend.NeighborAllgather, backend.NeighborAllgatherv, backend.NeighborAlltoall, backend.NeighborAlltoallv:
		return false
	case backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
		return r == j.root && j.inPlace[r]
	case backend.Exscan:
		return r != 0 && j.inPlace[r]
	}
	return j.inPlace[r]
}

// prepare makes the calls and works out the results.
func (j *job) prepare(rng *rand.Rand) {
	elem, n := j.elem, j.n
	j.calls, j.want = make([]*backend.Call, n), make([][]byte, n)
	dt := word
	if elem != 8 {
		dt = &backend.Datatype{Kind: backend.Opaque, Size: elem, Name: "opaque", ID: 1 << 20}
	}
	if j.f != nil {
		j.op = wordOp(j.commutative, j.f)
	}
	input := make([][]byte, n) // each rank's contribution, without gaps
	for r := range n {
		c := &backend.Call{Coll: j.coll, Root: -1, Count: j.count, Type: dt, Op: j.op, InPlace: j.isInPlace(r)}
		j.calls[r] = c
		switch j.coll {
		case backend.Bcast, backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
			c.Root = j.root
		}
		if j.coll == backend.Barrier {
			c.Count, c.Type = 0, nil
		}
	}
	row := func(r int) []int { return j.counts[r*n : (r+1)*n] }
	col := func(r int) (c []int) {
		for i := range n {
			c = append(c, j.counts[i*n+r])
		}
		return c
	}
	// place gives rank r a Recv of total elements that its input of off
	// elements into it belongs to if in place, and else a Send.
	place := func(r, total, off int) {
		c := j.calls[r]
		c.Recv = random(rng, total*elem)
		if c.InPlace {
			copy(c.Recv[off*elem:], input[r])
		} else {
			c.Send = slices.Clone(input[r])
		}
		j.want[r] = slices.Clone(c.Recv)
	}
	switch j.coll {
	case backend.Barrier:
	case backend.Bcast:
		for r := range n {
			input[r] = random(rng, j.count*elem)
			j.calls[r].Recv = input[r]
		}
		for r := range n {
			j.want[r] = slices.Clone(input[j.root])
		}
	case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
		j.prepareReduction(rng, input, place)
	case backend.Gather, backend.Allgather:
		for r := range n {
			input[r] = random(rng, j.count*elem)
		}
		all := slices.Concat(input...)
		for r := range n {
			if r == j.root || j.coll == backend.Allgather {
				place(r, n*j.count, r*j.count)
				j.want[r] = all
			} else {
				j.calls[r].Send = slices.Clone(input[r])
			}
		}
	case backend.Gatherv, backend.Allgatherv:
		for r := range n {
			input[r] = random(rng, j.counts[r]*elem)
		}
		for r := range n {
			if r != j.root && j.coll == backend.Gatherv {
				j.calls[r].Send = slices.Clone(input[r])
				continue
			}
			d, total := j.layout(rng, j.counts)
			j.calls[r].RecvCounts, j.calls[r].RecvDispls = j.counts, d
			place(r, total, d[r])
			for i := range n {
				copy(j.want[r][d[i]*elem:], input[i])
			}
		}
	case backend.Scatter, backend.Scatterv:
		root := j.calls[j.root]
		counts := slices.Repeat([]int{j.count}, n)
		d := make([]int, n)
		for i := range d {
			d[i] = i * j.count
		}
		total := n * j.count
		if j.coll == backend.Scatterv {
			counts = j.counts
			d, total = j.layout(rng, counts)
			root.SendCounts, root.SendDispls = counts, d
		}
		root.Send = random(rng, total*elem)
		for r, c := range j.calls {
			if !c.InPlace {
				c.Recv = random(rng, counts[r]*elem)
				j.want[r] = slices.Clone(root.Send[d[r]*elem : (d[r]+counts[r])*elem])
			}
		}
	case backend.Alltoall, backend.Alltoallv:
		if j.coll == backend.Alltoall {
			j.counts = slices.Repeat([]int{j.count}, n*n)
			j.packed = true
		}
		for i := range j.counts {
			// A rank in place sends as much as it receives.
			if a, b := i/n, i%n; j.isInPlace(a) || j.isInPlace(b) {
				j.counts[i] = j.counts[b*n+a]
			}
		}
		blocks := make([][]byte, n*n)
		for i, m := range j.counts {
			blocks[i] = random(rng, m*elem)
		}
		for r, c := range j.calls {
			sd, st := j.layout(rng, row(r))
			rd, rt := j.layout(rng, col(r))
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
			j.want[r] = slices.Clone(c.Recv)
			for i := range n {
				copy(j.want[r][rd[i]*elem:], blocks[i*n+r])
			}
			if j.coll == backend.Alltoallv {
				c.RecvCounts, c.RecvDispls = col(r), rd
				if !c.InPlace {
					c.SendCounts, c.SendDispls = row(r), sd
				}
			}
		}
	default:
		j.prepareNeighbors(rng)
	}
	j.before = nil
	for _, c := range j.calls {
		j.before = append(j.before, slices.Clone(c.Send))
	}
}

// prepareReduction is prepare for the reductions.
func (j *job) prepareReduction(rng *rand.Rand, input [][]byte, place func(r, total, off int)) {
	n := j.n
	total := j.count
	if j.coll == backend.ReduceScatterBlock {
		total *= n
		j.counts = slices.Repeat([]int{j.count}, n)
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
	ring := j.commutative && n&(n-1) != 0 && total*8 >= n*j.ringChunk
	for i := range result {
		if ring {
			result[i] = ringOf(column(i, n), chunk[i], j.f)
		} else {
			result[i] = treeOf(column(i, n), j.f)
		}
	}
	off := 0
	for r := range n {
		c := j.calls[r]
		switch j.coll {
		case backend.Reduce:
			if r != j.root {
				c.Send = slices.Clone(input[r])
				continue
			}
			fallthrough
		case backend.Allreduce:
			place(r, total, 0)
			j.want[r] = wordBytes(result)
		case backend.ReduceScatterBlock, backend.ReduceScatter:
			if j.coll == backend.ReduceScatter {
				c.RecvCounts = j.counts
			}
			if m := j.counts[r]; c.InPlace {
				place(r, total, 0)
			} else {
				place(r, m, 0)
			}
			copy(j.want[r], wordBytes(result[off:off+j.counts[r]]))
			off += j.counts[r]
		case backend.Scan, backend.Exscan:
			if r == 0 && j.coll == backend.Exscan {
				c.Send = slices.Clone(input[r])
				continue
			}
			place(r, total, 0)
			for i := range total {
				own := j.coll == backend.Scan
				operands := column(i, r)
				if own {
					operands = column(i, r+1)
				}
				binary.LittleEndian.PutUint64(j.want[r][8*i:], prefixOf(operands, own, j.f))
			}
		}
	}
}
