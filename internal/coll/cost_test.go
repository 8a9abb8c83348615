package coll

import (
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

// size is what a cost formula is of: n ranks, of which p is the largest power
// of two not above, l its logarithm, big the logarithm of n rounded up, r 1 if
// n is not a power of two; m bytes as the selection counts them, s segments of
// a chain; e edges from each rank of a graph.
type size struct{ n, p, l, big, r, m, s, e int }

// cost is a row of docs/algorithms.md: its text there and the same as code.
type cost struct {
	name      string
	stepsText string
	steps     func(z size) int
	bytesText string // the most that any rank sends
	bytes     func(z size) int
}

// ones returns how many of the numbers below n have a bit set, summed over the
// bits.
func ones(n int) (c int) {
	for i := range n {
		c += bits.OnesCount(uint(i))
	}
	return c
}

var costs = []cost{
	{"barrier/dissemination", "⌈log n⌉", func(z size) int { return z.big }, "0", func(z size) int { return 0 }},

	{"bcast/binomial", "⌈log n⌉", func(z size) int { return z.big }, "m ⌈log n⌉", func(z size) int { return z.m * z.big }},
	{"bcast/scatter-doubling", "2 log n", func(z size) int { return 2 * z.l }, "2m (n−1)/n", func(z size) int { return 2 * z.m * (z.n - 1) / z.n }},
	{"bcast/scatter-ring", "⌈log n⌉ + n−1", func(z size) int { return z.big + z.n - 1 }, "2m (n−1)/n", func(z size) int { return 2 * z.m * (z.n - 1) / z.n }},
	{"bcast/chain", "s + n−2", func(z size) int { return z.s + z.n - 2 }, "m", func(z size) int { return z.m }},

	{"reduce/binomial", "⌈log n⌉", func(z size) int { return z.big }, "m", func(z size) int { return z.m }},
	{"reduce/rabenseifner", "2 log p + r", func(z size) int { return 2*z.l + z.r }, "m (p−1)/p + m/2", func(z size) int { return z.m*(z.p-1)/z.p + z.m/2 }},
	{"reduce/ring", "2(n−1)", func(z size) int { return 2 * (z.n - 1) }, "m", func(z size) int { return z.m }},

	{"allreduce/recursive-doubling", "log p + 2r", func(z size) int { return z.l + 2*z.r }, "m log p + r m", func(z size) int { return z.m*z.l + z.r*z.m }},
	{"allreduce/rabenseifner", "2 log p + 2r", func(z size) int { return 2*z.l + 2*z.r }, "2m (p−1)/p + r m", func(z size) int { return 2*z.m*(z.p-1)/z.p + z.r*z.m }},
	{"allreduce/ring", "2(n−1)", func(z size) int { return 2 * (z.n - 1) }, "2m (n−1)/n", func(z size) int { return 2 * z.m * (z.n - 1) / z.n }},

	{"reduce_scatter_block/recursive-halving", "log p + 2r", func(z size) int { return z.l + 2*z.r }, "m (n−1)/n, with r: m", halvingBytes},
	{"reduce_scatter_block/pairwise", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},
	{"reduce_scatter_block/ring", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},
	{"reduce_scatter/recursive-halving", "log p + 2r", func(z size) int { return z.l + 2*z.r }, "m (n−1)/n, with r: m", halvingBytes},
	{"reduce_scatter/pairwise", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},
	{"reduce_scatter/ring", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},

	{"gather/binomial", "⌈log n⌉", func(z size) int { return z.big }, "m max(q/2, n−q)", func(z size) int {
		q := 1
		for 2*q < z.n {
			q *= 2
		}
		return z.m * max(q/2, z.n-q)
	}},
	{"gather/linear", "n−1", func(z size) int { return z.n - 1 }, "m", func(z size) int { return z.m }},
	{"gatherv/linear", "n−1", func(z size) int { return z.n - 1 }, "m", func(z size) int { return z.m }},
	{"scatter/binomial", "⌈log n⌉", func(z size) int { return z.big }, "m (n−1)", others},
	{"scatter/linear", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)", others},
	{"scatterv/linear", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)", others},

	{"allgather/recursive-doubling", "log n", func(z size) int { return z.l }, "m (n−1)/n", allButOwn},
	{"allgather/bruck", "⌈log n⌉", func(z size) int { return z.big }, "m (n−1)/n", allButOwn},
	{"allgather/ring", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},
	{"allgatherv/bruck", "⌈log n⌉", func(z size) int { return z.big }, "m (n−1)/n", allButOwn},
	{"allgatherv/ring", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)/n", allButOwn},

	{"alltoall/bruck", "⌈log n⌉", func(z size) int { return z.big }, "m Σ bits(i), i < n", func(z size) int { return z.m * ones(z.n) }},
	{"alltoall/spread", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)", others},
	{"alltoall/pairwise", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)", others},
	{"alltoallv/spread", "n−1", func(z size) int { return z.n - 1 }, "m (n−1)", others},

	{"scan/recursive-doubling", "⌈log n⌉", func(z size) int { return z.big }, "m ⌈log n⌉", func(z size) int { return z.m * z.big }},
	{"neighbor/linear", "e", func(z size) int { return z.e }, "e m", func(z size) int { return z.e * z.m }},

	{"exscan/recursive-doubling", "⌈log n⌉", func(z size) int { return z.big }, "m ⌈log n⌉", func(z size) int { return z.m * z.big }},
}

func allButOwn(z size) int { return z.m * (z.n - 1) / z.n }
func others(z size) int    { return z.m * (z.n - 1) }
func halvingBytes(z size) int {
	if z.r == 1 {
		return z.m
	}
	return allButOwn(z)
}

// TestStepsAndBytesMatchTheFormulas runs every algorithm with blocks of equal length and compares its
// steps and bytes with the formulas.
func TestStepsAndBytesMatchTheFormulas(t *testing.T) {
	if len(costs) != len(ruleNames()) {
		t.Errorf("%d algorithms, %d formulas", len(ruleNames()), len(costs))
	}
	rng := rand.New(rand.NewPCG(8, 0))
	for _, want := range costs {
		i := slices.IndexFunc(rules[:], func(r rule) bool { return r.name == want.name })
		if i < 0 {
			t.Errorf("no algorithm %s", want.name)
			continue
		}
		r := &rules[i]
		for _, n := range ranks(t) {
			z := size{n: n, p: 1 << (bits.Len(uint(n)) - 1), l: bits.Len(uint(n)) - 1, big: bits.Len(uint(n - 1))}
			if z.p != n {
				z.r = 1
			}
			if r.needs == pow2 && z.r == 1 || r.needs == ring && z.r == 0 {
				continue
			}
			// Lengths that all splits divide.
			vector := n * z.p * 8 // a part of a broadcast is whole lines of 64 bytes
			tr := &trial{coll: r.coll, n: n, count: vector, elem: 8, inPlace: make([]bool, n), root: rng.IntN(n)}
			switch r.coll {
			case backend.Barrier:
				tr.count = 0
			case backend.ReduceScatterBlock:
				tr.count = vector / n
			case backend.ReduceScatter, backend.Allgatherv:
				tr.counts = slices.Repeat([]int{vector / n}, n)
			case backend.Gatherv, backend.Scatterv:
				tr.counts, tr.count = slices.Repeat([]int{3}, n), 0
			case backend.Alltoallv:
				tr.counts, tr.count = slices.Repeat([]int{3}, n*n), 0
			case backend.Gather, backend.Scatter, backend.Allgather, backend.Alltoall:
				tr.count = 3
			case backend.NeighborAllgather:
				tr.count, tr.degree, z.e = 3, 1+n/3, 1+n/3
			}
			switch z.m = 8 * tr.count; r.coll {
			case backend.ReduceScatterBlock, backend.Allgather:
				z.m *= n
			case backend.Gatherv, backend.Scatterv, backend.Alltoallv:
				z.m = 8 * 3
			}
			z.s = (z.m + small.segment - 1) / small.segment
			if reduces(r.coll) {
				tr.f, tr.commutative = mix, r.needs == ring
			}
			m, err := tr.run(rng, &small, r)
			if err != nil {
				t.Fatalf("%v: %v", tr, err)
			}
			if got := slices.Max(m.sent); got != want.bytes(z) {
				t.Errorf("%s, %d ranks, m = %d: a rank sends %d bytes, %s is %d", want.name, n, z.m, got, want.bytesText, want.bytes(z))
			}
			if m.steps != want.steps(z) {
				t.Errorf("%s, %d ranks: %d steps, %s is %d", want.name, n, m.steps, want.stepsText, want.steps(z))
			}
		}
	}
}

func ruleNames() (names []string) {
	for _, r := range rules {
		if !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}

// TestFormulasAreDocumented: docs/algorithms.md has a row for every algorithm with the
// formulas that were checked. TestFormulasForNodesAreDocumented has those for nodes.
func TestFormulasAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) > 5 && strings.Contains(cells[1], "`") && !strings.Contains(cells[1], "/nodes") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows[strings.Trim(cells[1], "`")] = cells
		}
	}
	for _, c := range costs {
		row := rows[c.name]
		if row == nil {
			t.Errorf("%s is not documented", c.name)
			continue
		}
		if row[2] != c.stepsText || row[3] != c.bytesText {
			t.Errorf("%s is documented with %q steps and %q bytes, checked are %q and %q", c.name, row[2], row[3], c.stepsText, c.bytesText)
		}
		delete(rows, c.name)
	}
	for name := range rows {
		t.Errorf("%s is documented and does not exist", name)
	}
}

// TestNumbersOfMessages counts messages where what matters is how many there are.
func TestNumbersOfMessages(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 0))
	total := func(tr *trial) (sum int) {
		m, err := tr.run(rng, &small, nil)
		if err != nil {
			t.Fatalf("%v: %v", tr, err)
		}
		for _, k := range m.messages {
			sum += k
		}
		return sum
	}
	for n := 2; n <= 17; n++ {
		// Empty blocks are sent where only the two ends know their lengths, and
		// nowhere else.
		for c := backend.Barrier; c <= backend.NeighborAlltoallv; c++ {
			tr := newTrial(rng, c, n, 0)
			want := 0
			switch c {
			case backend.Barrier:
				want = n * bits.Len(uint(n-1))
			case backend.Gatherv, backend.Scatterv:
				want = n - 1
			case backend.Alltoallv:
				want = n * (n - 1)
			}
			if c.Neighbor() {
				tr.degree, want = 2, 2*n
			}
			if got := total(tr); got != want {
				t.Errorf("%v with nothing to move: %d messages, want %d", tr, got, want)
			}
		}
		// A block of ranks that nobody is above of is not sent down: in the step
		// with distance d, the last d ranks send nothing.
		if k := bits.Len(uint(n)) - 1; n == 1<<k {
			for _, c := range []backend.Coll{backend.Scan, backend.Exscan} {
				if got, want := total(newTrial(rng, c, n, 3)), n*k-(n-1); got != want {
					t.Errorf("%v of %d ranks: %d messages, want %d", c, n, got, want)
				}
			}
		}
	}
}

// TestScratchIsAsDocumented: the scratch memory of the algorithms for long messages is what
// docs/algorithms.md says.
func TestScratchIsAsDocumented(t *testing.T) {
	const count = 1 << 10 // a multiple of 64 bytes, so that nothing is rounded
	for _, c := range []struct {
		algorithm string
		n         int
		inPlace   bool
		want      int // for vectors of n*count elements, blocks of count elements
	}{
		{"alltoall/pairwise", 7, true, 2 * 8 * count},
		{"alltoall/pairwise", 8, true, 2 * 8 * count},
		{"alltoall/pairwise", 7, false, 0},
		{"alltoall/spread", 20, true, 2 * small.window * 8 * count},
		{"allgather/ring", 7, false, 0},
		{"bcast/chain", 7, false, 0},
		{"bcast/scatter-ring", 7, false, 0},
		{"allreduce/rabenseifner", 8, false, 8 * 8 * count / 4},
		{"allreduce/rabenseifner", 8, true, 8 * 8 * count / 2},
		{"allreduce/ring", 7, true, 2 * 8 * count},
		{"reduce_scatter_block/ring", 7, true, 2 * 8 * count},
		{"reduce_scatter_block/pairwise", 7, false, 6 * 8 * count},
	} {
		r := &rules[slices.IndexFunc(rules[:], func(r rule) bool { return r.name == c.algorithm })]
		call := &backend.Call{Coll: r.coll, Count: count, Type: word, Op: wordOp(true, sum), InPlace: c.inPlace}
		switch r.coll {
		case backend.Bcast, backend.Allreduce:
			call.Count *= c.n
		}
		b := newBuilder(call, 1, c.n, &small)
		r.build(b)
		if s := b.schedule(r.name); s.Scratch != c.want {
			t.Errorf("%s of %d ranks, in place %v: %d bytes of scratch, want %d", c.algorithm, c.n, c.inPlace, s.Scratch, c.want)
		}
	}
}

// TestAllgathervPassesLongBlocksOnInPieces: one long block goes around the ring in pieces, in about
// as much time as equal blocks, and not n-1 times its length.
func TestAllgathervPassesLongBlocksOnInPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 0))
	i := slices.IndexFunc(rules[:], func(r rule) bool { return r.name == "allgatherv/ring" })
	for n := 2; n <= 17; n++ {
		tr := &trial{coll: backend.Allgatherv, n: n, count: 20 * n, elem: 8, inPlace: make([]bool, n), counts: make([]int, n)}
		tr.counts[rng.IntN(n)] = 20 * n
		m, err := tr.run(rng, &small, &rules[i])
		if err != nil {
			t.Fatal(err)
		}
		// n pieces of the mean length over n-1 links.
		if want := n + n - 2; m.steps != want {
			t.Errorf("%d ranks: %d steps of the mean length, want %d", n, m.steps, want)
		}
	}
}
