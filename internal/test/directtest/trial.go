package directtest

import (
	"bytes"
	"fmt"

	"github.com/cohort-hpc/cohort/backend"
)

// Colls is every collective.
var Colls = []backend.Coll{
	backend.Barrier, backend.Bcast, backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock,
	backend.ReduceScatter, backend.Gather, backend.Gatherv, backend.Allgather, backend.Allgatherv,
	backend.Scatter, backend.Scatterv, backend.Alltoall, backend.Alltoallv, backend.Scan, backend.Exscan,
}

// Case says what to call. Count is that of the call, and the scale of the blocks
// of the forms whose ranks have different ones.
type Case struct {
	Coll    backend.Coll
	Ranks   int
	Count   int
	Root    int
	InPlace bool
	Op      *backend.Op // gives the type too
}

// String implements fmt.Stringer.
func (c Case) String() string {
	s := fmt.Sprintf("%v/ranks=%d/count=%d/root=%d/%s", c.Coll, c.Ranks, c.Count, c.Root, c.Op.Type.Name)
	if c.InPlace {
		s += "/inplace"
	}
	return s
}

// longProduct is the longest vector of matrices worth the time.
const longProduct = 1500

// Cases returns the cases of some numbers of ranks and counts: every collective,
// all roots that differ, in place where that exists, for both types.
func Cases(ranks, counts []int) []Case {
	var cases []Case
	for _, coll := range Colls {
		for _, n := range ranks {
			for _, count := range counts {
				for _, root := range roots(coll, n) {
					for _, op := range []*backend.Op{Sum, Product} {
						if op == Product && count > longProduct {
							continue
						}
						c := Case{coll, n, count, root, false, op}
						cases = append(cases, c)
						if coll != backend.Barrier && coll != backend.Bcast {
							c.InPlace = true
							cases = append(cases, c)
						}
					}
				}
			}
		}
	}
	return cases
}

func roots(coll backend.Coll, n int) []int {
	switch coll {
	case backend.Bcast, backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
		if n > 1 {
			return []int{0, n - 1}
		}
		return []int{0}
	}
	return []int{-1}
}

const (
	guard = 64   // bytes on both sides of every buffer
	blank = 0xa5 // what is there, and in receive buffers
)

// Trial is the calls of a Case and what must come of them.
type Trial struct {
	Case
	Calls []*backend.Call // by rank

	memory [][]byte // the buffers with their guards
	wanted [][]byte // what must be in them afterwards
}

// New makes the calls of a case.
func New(c Case) *Trial {
	t := &Trial{Case: c}
	in := make([][]byte, c.Ranks) // the ranks' inputs, contiguous
	for r := range in {
		in[r] = t.input(r)
	}
	for r := range c.Ranks {
		t.Calls = append(t.Calls, t.call(r, in))
	}
	return t
}

// elements is how long rank r's input is.
func (t *Trial) elements(r int) int {
	n := t.Ranks
	switch t.Coll {
	case backend.Barrier:
		return 0
	case backend.ReduceScatterBlock, backend.Alltoall:
		return n * t.Count
	case backend.ReduceScatter:
		return t.total()
	case backend.Gatherv, backend.Allgatherv:
		return t.share(r)
	case backend.Scatter:
		return n * t.Count
	case backend.Scatterv:
		return t.total()
	case backend.Alltoallv:
		sum := 0
		for to := range n {
			sum += t.pair(r, to)
		}
		return sum
	}
	return t.Count
}

// share is rank r's part where the parts differ; pair what r has for to, which
// is symmetric as MPI_IN_PLACE needs it.
func (t *Trial) share(r int) int    { return (r*5 + 3) % 4 * t.Count / 2 }
func (t *Trial) pair(r, to int) int { return (r + to) % 3 * t.Count / 2 }
func (t *Trial) total() (total int) {
	for r := range t.Ranks {
		total += t.share(r)
	}
	return total
}

// input returns rank r's input: words of a simple generator.
func (t *Trial) input(r int) []byte {
	b := make([]byte, t.elements(r)*t.Op.Type.Size)
	x := uint64(r)*0x9e3779b97f4a7c15 + uint64(t.Coll)
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		x += uint64(i)
		le.PutUint64(b[i:], x)
	}
	return b
}

// buffer returns memory for n elements between guards, and what must be in it.
func (t *Trial) buffer(n int) (have, want []byte) {
	size := n * t.Op.Type.Size
	m := bytes.Repeat([]byte{blank}, guard+size+guard)
	w := bytes.Clone(m)
	t.memory, t.wanted = append(t.memory, m), append(t.wanted, w)
	return m[guard : guard+size : guard+size], w[guard : guard+size]
}

// Check returns what is not as it must be, nil if all is well.
func (t *Trial) Check() error {
	for i, m := range t.memory {
		if bytes.Equal(m, t.wanted[i]) {
			continue
		}
		for at := range m {
			if m[at] != t.wanted[i][at] {
				return fmt.Errorf("%v: buffer %d of %d bytes: byte %d is %#x, must be %#x",
					t.Case, i, len(m)-2*guard, at-guard, m[at], t.wanted[i][at])
			}
		}
	}
	return nil
}

// spread puts blocks of the given lengths into a buffer, in turn from the end,
// with a gap of one element before each, and returns the displacements and the
// length of the buffer.
func spread(counts []int) (displs []int, total int) {
	displs = make([]int, len(counts))
	for i := len(counts) - 1; i >= 0; i-- {
		total++
		displs[i] = total
		total += counts[i]
	}
	return displs, total + 1
}

// lengths returns f for all ranks.
func (t *Trial) lengths(f func(r int) int) []int {
	counts := make([]int, t.Ranks)
	for r := range counts {
		counts[r] = f(r)
	}
	return counts
}
