package loggp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/coll"
)

// TestSelectionIsNearTheBest: what package coll chooses takes at most a tenth longer than the best of the
// algorithms that could be chosen: for up to 65 536 ranks with one on a node, and 1024 with 64.
func TestSelectionIsNearTheBest(t *testing.T) {
	few := map[int][]int{1: {2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 64}, 64: {128}}
	many := map[int][]int{
		1:  {9, 10, 11, 13, 15, 17, 20, 24, 32, 33, 48, 63, 65, 96, 100, 128, 250, 256, 500, 512, 1000, 1024, 4096, 65536},
		64: {192, 256, 320, 512, 1024},
	}
	for perNode := range few {
		m := Cluster(perNode)
		ranks := few[perNode]
		if !testing.Short() {
			ranks = append(ranks, many[perNode]...)
		}
		for _, n := range ranks {
			t.Run(fmt.Sprintf("%dranks%dpernode", n, perNode), func(t *testing.T) {
				t.Parallel()
				for _, c := range Colls {
					for _, bytes := range []int{8, 1 << 10, 8 << 10, 32 << 10, 128 << 10, 1 << 20, 16 << 20} {
						if testing.Short() && perNode > 1 && bytes == 8<<10 {
							continue
						}
						nearTheBest(t, m, c, n, bytes)
					}
				}
			})
		}
	}
}

// total is the most that all blocks of a collective with one block for each rank have together.
const total = 64 << 20

func nearTheBest(t *testing.T, m *Machine, c backend.Coll, n, bytes int) {
	call := Call(c, n, bytes)
	switch c {
	case backend.Barrier, backend.Scan:
		return // one algorithm
	case backend.Gather, backend.Scatter, backend.Alltoall:
		if n*bytes > total {
			return
		}
	}
	if call.Count == 0 {
		return
	}
	names, err := coll.Algorithms(call, 0, n, m.Nodes(n))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) == 1 {
		return
	}
	chosen, err := Predict(m, names[0], call, n, 16<<20)
	if err != nil {
		t.Errorf("%v of %d bytes: %v", c, bytes, err)
		return
	}
	for _, name := range names[1:] {
		if atLeast(m, name, n, bytes) > chosen {
			continue
		}
		seconds, err := Predict(m, name, call, n, 16<<20)
		if errors.Is(err, ErrLarge) {
			t.Errorf("%v of %d bytes by %s: %v, and no bound", c, bytes, name, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if chosen > 1.1*seconds {
			t.Errorf("%v of %d bytes: %s takes %.4g µs, %s %.4g µs", c, bytes, names[0], chosen*1e6, name, seconds*1e6)
		}
	}
}

// atLeast returns a time that an algorithm takes at least, 0 if none is known. It is that of a piece of the
// data that goes from rank to rank, all the way, or of what one rank receives.
func atLeast(m *Machine, algorithm string, n, bytes int) float64 {
	hop := &m.Inside
	if m.Ranks == 1 {
		hop = &m.Across
	}
	_, kind, _ := strings.Cut(algorithm, "/")
	switch kind {
	case "ring", "scatter-ring":
		return float64(n-2) * hop.Message(bytes/n)
	case "chain", "nodes-chain":
		return float64(n-1) * hop.Message(min(bytes, 64<<10))
	case "linear":
		return float64(n-m.Ranks) * max(m.Across.O, float64(bytes)*m.Across.PerGap)
	case "pairwise", "spread":
		if strings.HasPrefix(algorithm, "alltoall") {
			return float64(n-m.Ranks) * max(2*m.Across.O, float64(bytes*m.Ranks)*m.Across.PerGap)
		}
		return float64(n/2) * hop.Message(bytes/n)
	}
	return 0
}
