//go:build linux

package jobtest

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/cohorttest"
	"github.com/cohort-hpc/cohort/internal/frame"
	"github.com/cohort-hpc/cohort/internal/test/netlab"
)

// nodes launches ranks on hosts with several of them each, which are nodes: their ranks share memory.
type nodes struct {
	hosts
	of []int // the host of each rank
}

// inBlocks has so many consecutive ranks on each of some hosts.
func inBlocks(hosts, per int) (n nodes) {
	for r := range hosts * per {
		n.of = append(n.of, r/per)
	}
	return n
}

func (p nodes) Launch(t testing.TB, job *cohorttest.Job) error {
	t.Helper()
	// The ranks meet at the host that rendezvousAt chooses for one rank a host.
	n, err := netlab.New(netlab.Config{Hosts: job.Ranks + 1})
	if err != nil {
		return err
	}
	defer n.Close()
	n.Set(-1, -1, netlab.Path{})
	env, end, err := rendezvousAt(t, n, job.Ranks)
	if err != nil {
		return err
	}
	defer end()
	start := func(rank int, cmd *exec.Cmd) error { return n.Start(p.of[rank], cmd) }
	return cohorttest.Processes{Backend: "tcp", Env: env, Start: start}.Launch(t, job)
}

// TestConformanceOnTwoNodes runs the collectives of the conformance suite on 4 ranks on two nodes.
func TestConformanceOnTwoNodes(t *testing.T) {
	cohorttest.Become()
	if testing.Short() {
		t.Skip("left out with -short: the conformance suite on two nodes of two ranks; make test-all runs it")
	}
	if !needHosts(t) {
		return
	}
	cohorttest.Some(t, inBlocks(2, 2), 4, func(name string) bool {
		family, _, _ := strings.Cut(name, "/")
		return !slices.Contains([]string{"windows", "p2p", "probe", "requests"}, family)
	})
}

// TestResultsOnNodesHaveLocalBits checks that the results are those of ranks that are goroutines, wherever the ranks are.
func TestResultsOnNodesHaveLocalBits(t *testing.T) {
	if !needHosts(t) {
		return
	}
	placements := []nodes{{of: []int{0, 1, 1, 0, 2, 1, 1}}, inBlocks(2, 2), inBlocks(2, 3), {of: []int{0, 1, 0, 1}}, inBlocks(2, 4)}
	if testing.Short() {
		placements = placements[:1]
	}
	for _, p := range placements {
		t.Run(fmt.Sprint(p.of), func(t *testing.T) {
			want := cohorttest.Bits(t, cohorttest.Goroutines{}, len(p.of))
			if got := cohorttest.Bits(t, p, len(p.of)); got != want {
				t.Errorf("tcp gives %s, local %s", got, want)
			}
		})
	}
}

// crossing are operations of ranks on several nodes, and how many messages of how many bytes each of
// two nodes sends the other, by docs/algorithms.md; the fingerprints, one message, come on top.
var crossing = []struct {
	name     string
	do       func(w *cohort.Comm) error
	messages [2]int // from the first node to the second, and back
	bytes    int    // of each
}{
	{"barrier", (*cohort.Comm).Barrier, [2]int{0, 0}, 0},
	{"bcast", func(w *cohort.Comm) error { return cohort.Bcast(w, make([]float64, 3), 0) }, [2]int{1, 0}, 24},
	{"reduce", func(w *cohort.Comm) error {
		return cohort.Reduce(w, make([]float64, 3), make([]float64, 3), cohort.Sum, 0)
	}, [2]int{0, 1}, 24},
	{"allreduce", func(w *cohort.Comm) error {
		return cohort.Allreduce(w, make([]float64, 3), make([]float64, 3), cohort.Sum)
	}, [2]int{1, 1}, 24},
	{"allgather", func(w *cohort.Comm) error {
		return cohort.Allgather(w, make([]float64, 3), make([]float64, 3*w.Size()))
	}, [2]int{1, 1}, 48},
	{"gather", func(w *cohort.Comm) error {
		return cohort.Gather(w, make([]float64, 3), make([]float64, 3*w.Size()), 0)
	}, [2]int{0, 1}, 48},
	{"alltoall", func(w *cohort.Comm) error {
		return cohort.Alltoall(w, make([]float64, 3*w.Size()), make([]float64, 3*w.Size()))
	}, [2]int{1, 1}, 96},
}

// crosser is a rank's part: every operation between two marks of each node's leader, which is who
// talks to the other node.
func crosser(w *cohort.Comm) error {
	mark, end, err := netlab.Marker()
	if err != nil {
		return err
	}
	defer end()
	node, err := w.SplitShared()
	if err != nil {
		return err
	}
	defer node.Close()
	if node.Size() != 2 {
		return fmt.Errorf("%d ranks on a node", node.Size())
	}
	turn := func(text string) error {
		if err := node.Barrier(); err != nil {
			return err
		}
		if node.Rank() == 0 {
			if err := mark(text); err != nil {
				return err
			}
		}
		return node.Barrier()
	}
	for _, op := range crossing {
		if err := turn(op.name); err != nil {
			return err
		}
		if err := op.do(w); err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		if err := turn(""); err != nil {
			return err
		}
	}
	return nil
}

// TestOnlyNodeAlgorithmsTrafficCrosses checks that what crosses from node to node is what the algorithms for nodes have.
func TestOnlyNodeAlgorithmsTrafficCrosses(t *testing.T) {
	asRank(t, crosser)
	if !needHosts(t) {
		return
	}
	n, err := netlab.New(netlab.Config{Hosts: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	n.Set(-1, -1, netlab.Path{})
	n.Record()
	of := []int{0, 0, 1, 1}
	for r, o := range startRanksOn(t, n, of, "COHORT_HEARTBEAT=off")() {
		if o.err != nil {
			t.Fatalf("rank %d: %v\n%s", r, o.err, o.text)
		}
	}
	ops := n.Trace().Operations()
	const header, fingerprints = frame.HeaderSize, frame.HeaderSize + backend.SeenSize
	for _, op := range crossing {
		got := ops[op.name]
		if got == nil {
			t.Errorf("%s left no trace", op.name)
			continue
		}
		want := map[[2]int]int{}
		for i, k := range op.messages {
			want[[2]int{i, 1 - i}] = fingerprints + k*(header+op.bytes)
		}
		if !maps.Equal(got.Bytes, want) {
			t.Errorf("%s: bytes %v, want %v", op.name, got.Bytes, want)
		}
	}
}
