package topo_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

func TestNodePrintsItsParts(t *testing.T) {
	for _, c := range []struct {
		node *topo.Node
		want string
	}{
		{server(t).read(nil), "n01: 32 processors (0-31), 16 cores in 2 packages, 2 NUMA domains, 192 GiB"},
		{server(t).read(set("3")), "n01: 1 of 32 processors (3), 1 core in 1 package, 2 NUMA domains, 192 GiB"},
		{board(t).read(nil), "6 processors (0-5), 6 cores, 1 NUMA domain, 4 GiB"},
		{
			container(t).read(nil),
			"4 of 32 processors (4-7), 4 cores in 1 package, 1 NUMA domain, 192 GiB; control groups allow 2.5 processors, 8 GiB, 1024 processes",
		},
	} {
		if got := c.node.String(); got != c.want {
			t.Errorf(" got %s\nwant %s", got, c.want)
		}
	}
}

func TestSummaryNamesRanksAndNodes(t *testing.T) {
	many := make([]topo.Host, 1024)
	names, err := topo.ExpandHosts("n[0001-1024]")
	if err != nil {
		t.Fatal(err)
	}
	for i := range many {
		many[i] = topo.Host{Name: names[i], Ranks: []int{2 * i, 2*i + 1}}
	}
	two := []topo.Host{{Name: "n01", Ranks: []int{0, 1, 2, 3}}, {Name: "n02", Ranks: []int{4, 5, 6, 7}}}
	node := server(t).read(nil)
	plan := func(ranks, threads int, policy topo.Policy) *topo.Plan {
		p, err := node.Plan(ranks, threads, policy)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		summary topo.Summary
		want    string
	}{
		{topo.Summary{}, ""},
		{topo.Summary{Hosts: []topo.Host{{Name: "vm", Ranks: []int{0}}}}, "1 rank on 1 node: vm: 0"},
		{topo.Summary{Hosts: two}, "8 ranks on 2 nodes: n01: 0-3, n02: 4-7"},
		{
			topo.Summary{
				Hosts: two, Backend: "mpi", Library: "MPICH 4.0.2", Scheduler: topo.ReadJob(environment(slurmTask), nil).Batch(),
				Threads: 4, Policy: topo.NUMA, Sets: plan(4, 4, topo.NUMA).Sets[0],
			},
			"8 ranks on 2 nodes: n01: 0-3, n02: 4-7; 4 threads per rank pinned to NUMA domains (rank 0: 0-3,16-19); mpi (MPICH 4.0.2); Slurm job 4711.2",
		}, {
			topo.Summary{Threads: 16, Policy: topo.NUMA, Sets: plan(1, 16, topo.NUMA).Sets[0]},
			"16 threads per rank pinned to NUMA domains (rank 0: 0-7,16-23 | 8-15,24-31)",
		}, {
			topo.Summary{Threads: 2, Policy: topo.Cores, Sets: plan(2, 2, topo.Cores).Sets[0]},
			"2 threads per rank pinned to cores (rank 0: 0,16 | 1,17)",
		}, {
			topo.Summary{Threads: 12, Policy: topo.Cores, Sets: plan(1, 12, topo.Cores).Sets[0]},
			"12 threads per rank pinned to cores (rank 0: 0,16 | 1,17 | 2,18 | 3,19 | 4,20 | 5,21 | 6,22 | 7,23 | …)",
		}, {
			topo.Summary{Threads: 18, Policy: topo.Cores, Sets: plan(1, 18, topo.Cores).Sets[0], Notes: []string{plan(1, 18, topo.Cores).Note()}},
			"18 threads per rank pinned to cores (rank 0: 0-17); 18 threads on 16 cores: some share a core, as its hardware threads",
		},
		{
			topo.Summary{Hosts: two, Backend: "mpi", Library: "Open MPI 4.1.4", Version: "MPI 3.1", ThreadLevel: "multiple"},
			"8 ranks on 2 nodes: n01: 0-3, n02: 4-7; mpi (Open MPI 4.1.4, MPI 3.1, threads: multiple)",
		},
		{topo.Summary{Library: "MPICH 4.0.2", ThreadLevel: "serialized"}, "MPICH 4.0.2, threads: serialized"},
		{topo.Summary{Scheduler: "PBS job 7.head"}, "PBS job 7.head"},
		{topo.Summary{Threads: 1, Backend: "shm", Notes: []string{""}}, "1 thread per rank, not pinned; shm"},
		{topo.Summary{Hosts: many}, "2048 ranks on 1024 nodes, 2 on each: n0001 … n1024"},
		{topo.Summary{Hosts: append(many[:10:10], topo.Host{Name: "login", Ranks: []int{20}})}, "21 ranks on 11 nodes, 1 to 2 on each: n0001 … login"},
	} {
		if got := c.summary.String(); got != c.want {
			t.Errorf(" got %s\nwant %s", got, c.want)
		}
	}
}
