package hybrid

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/internal/test/must"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// The summary of rank 0 notes where ranks of other nodes differ: in their number of threads, and in
// having more threads than processors.
func TestSummaryNotesDifferencesOfRanks(t *testing.T) {
	const turns = topo.TakingTurns
	for _, k := range []struct {
		ranks   []share
		want    []string
		wantNot []string
	}{
		{[]share{{Threads: 1}, {Threads: 1}}, []string{"1 thread per rank, not pinned"}, []string{"ranks have", "more threads", "share some"}},
		{[]share{{Threads: 1}, {Threads: 4}, {Threads: 2}}, []string{"ranks have 1 to 4 threads"}, []string{"more threads"}},
		{
			[]share{{Threads: 1}, {Threads: 1, Crowding: turns}, {Threads: 1, Crowding: turns}, {Threads: 1}, {Threads: 1, Crowding: turns}},
			[]string{"more threads than processors for ranks 1-2,4"}, []string{"ranks have"},
		},
		{
			[]share{{Threads: 1}, {Threads: 1, Partly: true}, {Threads: 1, Partly: true}},
			[]string{"ranks 1-2 share some of their processors"}, []string{"ranks have", "more threads"},
		},
		// The notes of rank 0 report its own crowding.
		{[]share{{Threads: 1, Crowding: turns}, {Threads: 1, Crowding: turns}}, []string{"a note"}, []string{"more threads"}},
	} {
		e := must.Get(Start(context.Background(), &Config{Threads: 1, Pin: "none"}))
		plan := must.Get(planFor(e.Machine, place{0, 1, 1, false}, "none"))
		e.summarize(plan, k.ranks, []string{"a note"})
		line := e.Summary.String()
		for _, want := range k.want {
			if !strings.Contains(line, want) {
				t.Errorf("%+v: %q is not in %q", k.ranks, want, line)
			}
		}
		for _, not := range k.wantNot {
			if strings.Contains(line, not) {
				t.Errorf("%+v: %q is in %q", k.ranks, not, line)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If threads are pinned, the summary notes ranks that share only some of their processors.
func TestPartlySharedProcessorsAreNoted(t *testing.T) {
	whole := must.Get(topo.Here())
	if runtime.GOOS != "linux" || len(whole.CPUs) < 2 {
		t.Skip("threads can be pinned on Linux only, and there have to be two processors")
	}
	for _, k := range []struct {
		pin   pool.Pinning
		parts []topo.CPUSet
		want  bool
	}{
		{pool.Cores, []topo.CPUSet{whole.CPUs, whole.CPUs[:1]}, true},
		{pool.None, []topo.CPUSet{whole.CPUs, whole.CPUs[:1]}, false},
		{pool.Cores, []topo.CPUSet{whole.CPUs[:1], whole.CPUs[1:2]}, false},
		{pool.Cores, []topo.CPUSet{whole.CPUs[:1], whole.CPUs[:1]}, false},
	} {
		var line string
		err := cohort.Run(context.Background(), 2, func(w *cohort.Comm) error {
			with := machinery
			with.here = func() (*topo.Node, error) { return topo.Read(os.DirFS("/"), k.parts[w.Rank()]) }
			e, err := (&Env{World: w}).start(context.Background(), &Config{Threads: 1, Pin: k.pin}, &with)
			if err != nil {
				return err
			}
			if w.Rank() == 0 {
				line = e.Summary.String()
			}
			return e.Close()
		})
		if err != nil || strings.Contains(line, "ranks 0-1 share some of their processors") != k.want {
			t.Errorf("%s, bound to %v: %v, %q", k.pin, k.parts, err, line)
		}
	}
}

// If ranks differ in their number of threads, no two threads share a processor while there are
// enough, although each rank passes its own number only.
func TestPlanKeepsThreadsApart(t *testing.T) {
	machine := &topo.Node{Domains: []topo.Domain{{ID: 0, Allowed: true}}}
	for cpu := range 8 {
		machine.CPUs = append(machine.CPUs, cpu)
		machine.Cores = append(machine.Cores, topo.Core{CPUs: topo.CPUSet{cpu}})
	}
	machine.Domains[0].CPUs = machine.CPUs
	var used topo.CPUSet
	for rank, threads := range []int{3, 1} {
		plan := must.Get(planFor(machine, place{rank, 2, 4, false}, "cores"))
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
