package coll

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
)

var update = flag.Bool("update", false, "rewrite the traces in testdata")

// TestSchedulesMatchTraces compares the schedules of a few collectives, small enough to
// follow by hand, with the traces in testdata, and runs them.
func TestSchedulesMatchTraces(t *testing.T) {
	for _, c := range []struct {
		algorithm      string
		n, count, root int
		counts         []int
		inPlace        bool
	}{
		{"barrier/dissemination", 5, 0, -1, nil, false},
		{"bcast/binomial", 6, 2, 2, nil, false},
		{"bcast/scatter-ring", 5, 40, 1, nil, false},
		{"bcast/chain", 3, 12, 0, nil, false},
		{"reduce/binomial", 6, 1, 3, nil, false},
		{"allreduce/recursive-doubling", 6, 1, -1, nil, false},
		{"allreduce/rabenseifner", 4, 4, -1, nil, true},
		{"allreduce/ring", 3, 6, -1, nil, false},
		{"reduce_scatter_block/recursive-halving", 4, 1, -1, nil, false},
		{"reduce_scatter/pairwise", 3, 6, -1, []int{0, 5, 1}, false},
		{"gather/binomial", 6, 1, 4, nil, false},
		{"allgather/bruck", 5, 1, -1, nil, false},
		{"allgatherv/ring", 4, 8, -1, []int{0, 8, 0, 0}, false},
		{"alltoall/bruck", 5, 1, -1, nil, false},
		{"scan/recursive-doubling", 5, 1, -1, nil, false},
	} {
		r := &rules[slices.IndexFunc(rules[:], func(r rule) bool { return r.name == c.algorithm })]
		tr := &trial{coll: r.coll, n: c.n, count: c.count, elem: 8, root: c.root, counts: c.counts, packed: true, inPlace: slices.Repeat([]bool{c.inPlace}, c.n)}
		if reduces(r.coll) {
			tr.f, tr.commutative = mix, r.needs == ring
		}
		m, err := tr.run(rand.New(rand.NewPCG(10, 0)), &small, r)
		if err != nil {
			t.Errorf("%v: %v", tr, err)
			continue
		}
		var w strings.Builder
		fmt.Fprintf(&w, "%v of %d ranks, count %d, elements of 8 bytes", tr.coll, tr.n, tr.count)
		if c.root >= 0 {
			fmt.Fprintf(&w, ", root %d", c.root)
		}
		if c.counts != nil {
			fmt.Fprintf(&w, ", counts %v", c.counts)
		}
		if c.inPlace {
			w.WriteString(", in place")
		}
		w.WriteByte('\n')
		for rank, e := range m.ranks {
			fmt.Fprintf(&w, "\nrank %d: %v", rank, e.sched)
		}
		file := filepath.Join("testdata", strings.ReplaceAll(c.algorithm, "/", "-")+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(w.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != w.String() {
			t.Errorf("%s is not what is written in %s; got\n%s", c.algorithm, file, w.String())
		}
	}
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) != 15 {
		t.Errorf("%d traces in testdata, want 15 (%v)", len(files), err)
	}
}

func TestActionsAndSchedulesAsText(t *testing.T) {
	for _, c := range []struct {
		a    Action
		want string
	}{
		{Action{Kind: SendTo, Peer: 3, A: Region{Send, 0, 8}}, "send[0:8] -> 3"},
		{Action{Kind: RecvFrom, Peer: 1, Dst: Region{Temp, 64, 16}}, "temp[64:80] <- 1"},
		{Action{Kind: Copy, A: Region{Send, 8, 8}, Dst: Region{Recv, 0, 8}}, "recv[0:8] = send[8:16]"},
		{Action{Kind: Reduction, A: Region{Temp, 0, 8}, B: Region{Recv, 0, 8}, Dst: Region{Recv, 0, 8}}, "recv[0:8] = temp[0:8] op recv[0:8]"},
		{Action{Kind: 9}, "Kind(9)"},
	} {
		if got := c.a.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	s := &Schedule{Algorithm: "x", Scratch: 64, Rounds: []Round{{
		Comm:  []Action{{Kind: SendTo, Peer: 1, A: Region{Send, 0, 8}}, {Kind: RecvFrom, Peer: 1, Dst: Region{Recv, 0, 8}}},
		Local: []Action{{Kind: Copy, A: Region{Recv, 0, 8}, Dst: Region{Temp, 0, 8}}},
	}}}
	want := "x, 64 bytes of scratch\n  1  send[0:8] -> 1, recv[0:8] <- 1  | temp[0:8] = recv[0:8]\n"
	if got := s.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Over all distances every rank is paired with every other rank once, and both ranks of
// a pair at the same distance.
func TestDistancesPairAllRanksOnce(t *testing.T) {
	for n := 1; n <= 40; n++ {
		met := map[[2]int]int{}
		for r := range n {
			for k := 1; k <= n/2; k++ {
				pair, m := beside(r, k, n)
				for _, p := range pair[:m] {
					if p == r || met[[2]int{r, p}] != 0 {
						t.Fatalf("%d ranks: rank %d is paired with %d again at distance %d", n, r, p, k)
					}
					met[[2]int{r, p}] = k
				}
			}
		}
		if len(met) != n*(n-1) {
			t.Fatalf("%d ranks: %d pairings, want %d", n, len(met), n*(n-1))
		}
		for k, d := range met {
			if met[[2]int{k[1], k[0]}] != d {
				t.Fatalf("%d ranks: %v are not paired at one distance", n, k)
			}
		}
	}
}

// TestSplitIsEvenAndComplete: the parts cover everything, in order, and differ by one at most,
// longer ones first.
func TestSplitIsEvenAndComplete(t *testing.T) {
	for n := 1; n <= 12; n++ {
		for count := range 50 {
			for i := range n {
				want := count / n
				if i < count%n {
					want++
				}
				if got := split(count, n, i+1) - split(count, n, i); got != want {
					t.Fatalf("part %d of %d over %d has %d, want %d", i, count, n, got, want)
				}
			}
			if split(count, n, 0) != 0 || split(count, n, n) != count {
				t.Fatalf("%d over %d: the parts do not cover everything", count, n)
			}
		}
	}
}

// FuzzCollective runs any collective that can be called.
func FuzzCollective(f *testing.F) {
	f.Add(uint8(backend.Allreduce), uint8(6), uint16(100), uint8(0), uint8(1), uint64(1))
	f.Add(uint8(backend.Gather), uint8(11), uint16(3), uint8(9), uint8(2), uint64(2))
	f.Add(uint8(backend.Allgatherv), uint8(5), uint16(40), uint8(0), uint8(0), uint64(3))
	f.Add(uint8(backend.Alltoallv), uint8(7), uint16(9), uint8(0), uint8(5), uint64(4))
	f.Add(uint8(backend.ReduceScatter), uint8(13), uint16(30), uint8(0), uint8(7), uint64(5))
	f.Fuzz(func(t *testing.T, c, n uint8, count uint16, root, flags uint8, seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ranks := int(n)%24 + 1
		tr := newTrial(rng, backend.Coll(c)%backend.NeighborAlltoallv+1, ranks, int(count)%300)
		tr.root = int(root) % ranks
		tr.commutative = flags&1 != 0
		tr.inPlace = placements(rng, ranks)[int(flags>>1)%3]
		lim := &small
		if flags&0x80 != 0 {
			lim = &defaults
		}
		if _, err := tr.run(rng, lim, nil); err != nil {
			t.Errorf("%v: %v", tr, err)
		}
	})
}
