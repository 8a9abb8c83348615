package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// run builds the trial's schedules, with the given rule or by selection, runs
// them and checks every buffer.
func (tr *trial) run(rng *rand.Rand, lim *limits, r *rule) (*machine, error) {
	tr.ringChunk = lim.ringChunk
	tr.prepare(rng)
	scheds := make([]*Schedule, tr.n)
	for rank, c := range tr.calls {
		if r == nil {
			var err error
			if scheds[rank], err = build(c, rank, tr.n, tr.nodes, lim); err != nil {
				return nil, err
			}
		} else {
			b := newBuilder(c, rank, tr.n, lim)
			b.nodes = tr.nodes
			r.build(b)
			scheds[rank] = b.schedule(r.name)
		}
		if scheds[rank].Algorithm != scheds[0].Algorithm {
			return nil, fmt.Errorf("rank 0 runs %s, rank %d %s", scheds[0].Algorithm, rank, scheds[rank].Algorithm)
		}
	}
	m := newMachine(tr.op, scheds, tr.calls)
	if err := m.run(rng.Perm(tr.n)); err != nil {
		return m, err
	}
	for rank, c := range tr.calls {
		if !bytes.Equal(c.Send, tr.before[rank]) {
			return m, fmt.Errorf("rank %d: the send buffer has changed", rank)
		}
		if !bytes.Equal(c.Recv, tr.want[rank]) {
			i := 0
			for c.Recv[i] == tr.want[rank][i] {
				i++
			}
			return m, fmt.Errorf("rank %d: recv is wrong from byte %d on, element %d", rank, i, i/tr.elem)
		}
	}
	return m, nil
}

func (tr *trial) String() string {
	return fmt.Sprintf("%v of %d ranks, count %d of %d bytes, root %d, counts %v, in place %v, commutative %v",
		tr.coll, tr.n, tr.count, tr.elem, tr.root, tr.counts, tr.inPlace, tr.commutative)
}

func rooted(c backend.Coll) bool {
	switch c {
	case backend.Bcast, backend.Reduce, backend.Gather, backend.Gatherv, backend.Scatter, backend.Scatterv:
		return true
	}
	return false
}

func reduces(c backend.Coll) bool {
	switch c {
	case backend.Reduce, backend.Allreduce, backend.ReduceScatterBlock, backend.ReduceScatter, backend.Scan, backend.Exscan:
		return true
	}
	return false
}

// newTrial returns a trial of about the given count. For the v-forms the blocks
// have that mean length.
func newTrial(rng *rand.Rand, c backend.Coll, n, count int) *trial {
	tr := &trial{coll: c, n: n, count: count, elem: 8, inPlace: make([]bool, n)}
	blocks := 0
	switch c {
	case backend.Barrier:
		tr.count = 0
	case backend.Gatherv, backend.Scatterv, backend.Allgatherv, backend.ReduceScatter:
		blocks = n
	case backend.Alltoallv:
		blocks = n * n
	}
	if blocks > 0 {
		tr.counts = make([]int, blocks)
		tr.count = 0
		skew := rng.IntN(3)
		for i := range tr.counts {
			switch {
			case skew == 0: // all equal
				tr.counts[i] = count
			case skew == 1: // many empty
				tr.counts[i] = max(0, rng.IntN(4*count+1)-2*count)
			case i == 0: // one has all
				tr.counts[rng.IntN(blocks)] = n * count
			}
		}
		if c == backend.Allgatherv || c == backend.ReduceScatter {
			for _, m := range tr.counts {
				tr.count += m
			}
		}
	}
	if reduces(c) {
		tr.f = mix
	}
	return tr
}

// placements are the ranks that work in place.
func placements(rng *rand.Rand, n int) [][]bool {
	none, all, some := make([]bool, n), make([]bool, n), make([]bool, n)
	for i := range n {
		all[i], some[i] = true, rng.IntN(2) == 0
	}
	return [][]bool{none, all, some}
}

// small has every algorithm at lengths of a few elements.
var small = limits{
	far: link{start: 64, post: 16, gap: 1, each: 16, cpu: 6}, near: link{start: 4, post: 1, each: 4, cpu: 4}, copy: 4, reduce: 6,
	segment: 40, ringChunk: 16, window: 3,
}

func ranks(t *testing.T) (n []int) {
	for i := 2; i <= 33; i++ {
		if !testing.Short() || i <= 9 || i == 16 || i == 17 {
			n = append(n, i)
		}
	}
	return n
}

// lengths are counts that split evenly or not, over n ranks where a count is not
// that of one block.
func lengths(c backend.Coll, n int) []int {
	switch c {
	case backend.Barrier:
		return []int{0}
	case backend.Bcast, backend.Reduce, backend.Allreduce, backend.Scan, backend.Exscan:
		return []int{0, 1, 5, n, 2*n + 3, 8 * n}
	}
	return []int{0, 1, 5, 8}
}

// TestEveryAlgorithmComputesItsCollective runs every algorithm wherever it can run, not only where it is
// chosen.
func TestEveryAlgorithmComputesItsCollective(t *testing.T) {
	seen := map[string]bool{}
	for i := range rules {
		r := &rules[i]
		if seen[r.name] {
			continue
		}
		seen[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			ran := 0
			for _, n := range ranks(t) {
				for _, count := range lengths(r.coll, n) {
					for _, commutative := range []bool{false, true} {
						if commutative && !reduces(r.coll) {
							continue
						}
						for _, where := range placements(rng, n) {
							tr := newTrial(rng, r.coll, n, count)
							tr.inPlace, tr.commutative = where, commutative
							if rooted(r.coll) {
								tr.root = rng.IntN(n)
							}
							if !reduces(r.coll) && count%2 == 1 {
								tr.elem = 3
							}
							if tr.f != nil {
								tr.op = wordOp(commutative, tr.f)
							}
							c := &backend.Call{Coll: tr.coll, Count: tr.count, Type: word, Op: tr.op}
							if s := newBuilder(c, 0, n, &small).shape(); !r.needs.met(s) {
								continue
							}
							ran++
							if _, err := tr.run(rng, &small, r); err != nil {
								t.Fatalf("%v: %v", tr, err)
							}
						}
					}
				}
			}
			if ran == 0 {
				t.Error("never ran")
			}
		})
	}
}

// TestChosenAlgorithmsAtRealLengths runs what is chosen with the real limits.
func TestChosenAlgorithmsAtRealLengths(t *testing.T) {
	lengths := []int{0, 1, 3, 64, 1000, 70001}
	sizes := []int{1, 2, 3, 4, 5, 7, 8}
	if testing.Short() {
		lengths, sizes = lengths[:5], []int{1, 2, 3, 8}
	}
	for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(3, uint64(c)))
			for _, n := range sizes {
				for _, count := range lengths {
					tr := newTrial(rng, c, n, count)
					tr.root = rng.IntN(n)
					tr.commutative = true
					tr.inPlace = placements(rng, n)[rng.IntN(3)]
					if _, err := tr.run(rng, &defaults, nil); err != nil {
						t.Fatalf("%v: %v", tr, err)
					}
				}
			}
		})
	}
}

// TestNoncommutativeOpsKeepTheOrderOfRanks compares with the plain fold in the order of ranks: what an
// associative operation that does not commute must give.
func TestNoncommutativeOpsKeepTheOrderOfRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for _, n := range ranks(t) {
		for _, count := range []int{1, 7, 40} {
			vecs := make([][]uint64, n)
			for r := range vecs {
				vecs[r] = words(random(rng, 8*count))
			}
			folded := func(upTo, i int) uint64 {
				x := vecs[0][i]
				for _, v := range vecs[1:upTo] {
					x = affine(x, v[i])
				}
				return x
			}
			for _, c := range []backend.Coll{backend.Reduce, backend.Allreduce, backend.Scan, backend.Exscan} {
				root := rng.IntN(n)
				var calls []*backend.Call
				var scheds []*Schedule
				op := wordOp(false, affine)
				for r := range n {
					call := &backend.Call{Coll: c, Root: root, Count: count, Type: word, Op: op, Send: wordBytes(vecs[r]), Recv: make([]byte, 8*count)}
					s, err := build(call, r, n, nil, &small)
					if err != nil {
						t.Fatal(err)
					}
					calls, scheds = append(calls, call), append(scheds, s)
				}
				if err := newMachine(op, scheds, calls).run(rng.Perm(n)); err != nil {
					t.Fatal(err)
				}
				for r, call := range calls {
					upTo := n
					switch c {
					case backend.Reduce:
						if r != root {
							continue
						}
					case backend.Scan:
						upTo = r + 1
					case backend.Exscan:
						if upTo = r; r == 0 {
							continue
						}
					}
					for i, got := range words(call.Recv) {
						if want := folded(upTo, i); got != want {
							t.Fatalf("%v of %d ranks: rank %d has %#x at %d, want %#x", c, n, r, got, i, want)
						}
					}
				}
			}
		}
	}
}

// TestReductionsGiveTheSameBits runs the four reductions of one random float64 vector with
// addition, for every root, and the evaluator.
func TestReductionsGiveTheSameBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	for _, n := range ranks(t) {
		for _, block := range []int{1, 3, 20} {
			count := n * block
			op := wordOp(true, float)
			input := make([][]byte, n)
			for r := range input {
				input[r] = random(rng, 8*count)
			}
			counts := make([]int, n)
			for range count {
				counts[rng.IntN(n)]++
			}
			exec := func(c backend.Coll, root int) []byte {
				var calls []*backend.Call
				var scheds []*Schedule
				for r := range n {
					call := &backend.Call{Coll: c, Root: root, Count: count, Type: word, Op: op, Send: input[r]}
					switch length := count; c {
					case backend.ReduceScatterBlock:
						call.Count = block
						call.Recv = make([]byte, 8*block)
					case backend.ReduceScatter:
						call.RecvCounts = counts
						call.Recv = make([]byte, 8*counts[r])
					default:
						if c == backend.Allreduce || r == root {
							call.Recv = make([]byte, 8*length)
						}
					}
					s, err := build(call, r, n, nil, &small)
					if err != nil {
						t.Fatal(err)
					}
					calls, scheds = append(calls, call), append(scheds, s)
				}
				if err := newMachine(op, scheds, calls).run(rng.Perm(n)); err != nil {
					t.Fatal(err)
				}
				var all []byte
				for r, call := range calls {
					if c != backend.Allreduce {
						all = append(all, call.Recv...)
					} else if all == nil {
						all = call.Recv
					} else if !bytes.Equal(all, call.Recv) {
						t.Fatalf("allreduce of %d ranks, count %d: ranks 0 and %d differ", n, count, r)
					}
				}
				return all
			}
			want := exec(backend.Allreduce, -1)
			for root := range n {
				if got := exec(backend.Reduce, root); !bytes.Equal(got, want) {
					t.Fatalf("reduce of %d ranks, count %d, root %d is not allreduce", n, count, root)
				}
			}
			if got := exec(backend.ReduceScatterBlock, -1); !bytes.Equal(got, want) {
				t.Fatalf("reduce_scatter_block of %d ranks, count %d is not allreduce", n, count)
			}
			if got := exec(backend.ReduceScatter, -1); !bytes.Equal(got, want) {
				t.Fatalf("reduce_scatter of %d ranks, counts %v is not allreduce", n, counts)
			}
			o := newOrder(n, count, 8, true, small.ringChunk)
			got := make([]byte, 8*count)
			if err := o.Eval(op, 0, count, got, vectors(input), make([]byte, 56*o.ScratchBlocks())); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("Eval for %d ranks, count %d is not allreduce", n, count)
			}
		}
	}
}

// TestBuildReturnsAnArgumentError: a call with an argument error has no schedule, and neither has an unknown one.
func TestBuildReturnsAnArgumentError(t *testing.T) {
	if _, err := Build(&backend.Call{Coll: backend.Barrier, Err: backend.ErrCount}, 1, 3, nil); err != backend.ErrCount {
		t.Errorf("got %v, want the error of the call", err)
	}
	if _, err := Build(&backend.Call{Coll: backend.NeighborAlltoallv + 1, Type: word}, 1, 3, nil); !errors.Is(err, backend.ErrInternal) {
		t.Errorf("an unknown collective: %v, want ErrInternal", err)
	}
}

// TestBuildDependsOnTheCallOnly: the same call gives the same schedule, and does so
// without looking at the buffers.
func TestBuildDependsOnTheCallOnly(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 0))
	for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
		tr := newTrial(rng, c, 6, 20)
		tr.prepare(rng)
		for r, call := range tr.calls {
			a, err := build(call, r, tr.n, nil, &small)
			if err != nil {
				t.Fatal(err)
			}
			bare := *call
			if c != backend.Gatherv && c != backend.Scatterv && !c.Neighbor() {
				bare.Send, bare.Recv = nil, nil
			}
			b, err := build(&bare, r, tr.n, nil, &small)
			if err != nil {
				t.Fatal(err)
			}
			if a.String() != b.String() {
				t.Errorf("%v: two schedules for rank %d:\n%v%v", c, r, a, b)
			}
			if !slices.Equal(words(call.Send), words(tr.before[r])) {
				t.Errorf("%v: Build has changed the send buffer", c)
			}
		}
	}
}
