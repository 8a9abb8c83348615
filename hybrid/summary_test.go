package hybrid

import (
	"context"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

// What ranks of other nodes have told is in the summary of rank 0 where it differs: how many threads
// they have, and that these take turns.
func TestSummaryOfOthers(t *testing.T) {
	const turns = int32(topo.TakingTurns)
	for _, k := range []struct {
		votes   []vote
		want    []string
		wantNot []string
	}{
		{[]vote{{threads: 1}, {threads: 1}}, []string{"1 thread per rank, not pinned"}, []string{"others", "more threads"}},
		{[]vote{{threads: 1}, {threads: 4}, {threads: 2}}, []string{"others have 1 to 4 threads"}, []string{"more threads"}},
		{
			[]vote{{threads: 1}, {threads: 1, crowding: turns}, {threads: 1, crowding: turns}, {threads: 1}, {threads: 1, crowding: turns}},
			[]string{"more threads than processors for ranks 1-2,4"}, []string{"others"},
		},
		// Its own crowding rank 0 tells in its own words.
		{[]vote{{threads: 1, crowding: turns}, {threads: 1, crowding: turns}}, []string{"a note"}, []string{"more threads"}},
	} {
		e, err := Start(context.Background(), &Config{Threads: 1, Pin: "none"})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := planFor(e.Machine, place{0, 1, 1}, "none")
		if err != nil {
			t.Fatal(err)
		}
		e.summarize(plan, k.votes, []string{"a note"})
		line := e.Summary.String()
		for _, want := range k.want {
			if !strings.Contains(line, want) {
				t.Errorf("%+v: %q is not in %q", k.votes, want, line)
			}
		}
		for _, not := range k.wantNot {
			if strings.Contains(line, not) {
				t.Errorf("%+v: %q is in %q", k.votes, not, line)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Where ranks have different numbers of threads, no two threads are on one processor while there are
// enough, although each rank knows its own number only.
func TestPlanOfDifferentThreads(t *testing.T) {
	machine := &topo.Node{Domains: []topo.Domain{{ID: 0, Allowed: true}}}
	for cpu := range 8 {
		machine.CPUs = append(machine.CPUs, cpu)
		machine.Cores = append(machine.Cores, topo.Core{CPUs: topo.CPUSet{cpu}})
	}
	machine.Domains[0].CPUs = machine.CPUs
	var used topo.CPUSet
	for rank, threads := range []int{3, 1} {
		plan, err := planFor(machine, place{rank, 2, 4}, "cores")
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range plan.Sets[rank][:threads] {
			if len(set) != 1 || len(used.Intersect(set)) > 0 {
				t.Errorf("rank %d has a thread on %v, and %v is used", rank, set, used)
			}
			used = used.Union(set)
		}
	}
	if len(used) != 4 {
		t.Errorf("4 threads are on %v", used)
	}
}
