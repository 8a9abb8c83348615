package sched_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/sched"
)

// places are where ranks on several nodes may be.
var places = []struct {
	name string
	of   func(rank int) int
}{
	{"blocks of 2", func(r int) int { return r / 2 }},
	{"blocks of 3", func(r int) int { return r / 3 }},
	{"two in turn", func(r int) int { return r % 2 }},
	{"the first alone", func(r int) int { return min(r, 1) }},
	{"uneven", func(r int) int { return []int{4, 0, 0, 4, 2, 0, 4, 2, 0, 0, 0, 7, 2}[r] }},
}

// TestEverythingOnSeveralNodes runs the tests again with ranks on several nodes.
func TestEverythingOnSeveralNodes(t *testing.T) {
	defer func() { nodeOf = nil }()
	for _, p := range places {
		nodeOf = p.of
		t.Run(p.name, func(t *testing.T) {
			t.Run("agree", TestAgreeReportsWhetherACallCanEndEarly)
			t.Run("agree mismatch", TestAgreeFindsDifferentCalls)
			t.Run("agree argument errors", TestAgreeArgumentErrors)
			t.Run("agree deadline", TestAgreeNamesTheMissingRank)
			t.Run("blocking", TestBlockingCollectivesGiveRightSums)
			t.Run("outstanding", TestOperationsCompleteInAnyOrder)
			t.Run("persistent", TestPersistentCollectivesRestart)
			t.Run("mismatch", TestMismatchNamesTheTwoLowestRanks)
			t.Run("lengths", TestWrongLengthsAreReportedToAllRanks)
			t.Run("argument errors", TestArgumentErrorIsMismatchOnOtherRanks)
			t.Run("no allocations", TestRepeatedCallsDoNotAllocate)
		})
	}
}

// counted is a rank of several nodes that counts what it sends to other ones.
type counted struct {
	placed
	rank, across int
}

func (c *counted) Isend(q *backend.Request, buf []byte, dest, tag int, mode backend.Mode) {
	if nodeOf(dest) != nodeOf(c.rank) {
		c.across++
	}
	c.placed.Isend(q, buf, dest, tag, mode)
}

// TestFingerprintsCrossNodesInFewestRounds: the exchange of fingerprints, which is the blocking barrier, sends
// from node to node what the dissemination among as many ranks as there are nodes
// does: N messages in each of its rounds.
func TestFingerprintsCrossNodesInFewestRounds(t *testing.T) {
	defer func() { nodeOf = nil }()
	for _, p := range places {
		nodeOf = p.of
		for _, n := range sizes {
			nodes := map[int]int{}
			for r := range n {
				nodes[nodeOf(r)]++
			}
			want := 0
			for d := 1; d < len(nodes); d *= 2 {
				want += len(nodes)
			}
			sent := make([]int, n)
			noErrors(t, ranks(t, n, func(bc backend.Comm, _ *sched.Runner) error {
				c := &counted{placed: bc.(placed), rank: bc.Rank()}
				err := sched.New(c).Run(nil, barrier(0), true)
				sent[bc.Rank()] = c.across
				return err
			}))
			got := 0
			for _, k := range sent {
				got += k
			}
			if got != want {
				t.Errorf("%s, %d ranks on %d nodes: %d messages across, want %d", p.name, n, len(nodes), got, want)
			}
		}
	}
}
