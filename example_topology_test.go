package cohort_test

import (
	"context"
	"fmt"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/topo"
)

func ExampleComm_Topology() {
	err := cohort.Run(context.Background(), 4, func(world *cohort.Comm) error {
		where := world.Topology()
		if world.Rank() == 0 { // fmt.Println(where) prints all of it, with the node's name
			fmt.Println(len(where.Hosts), where.Hosts[0].Ranks, where.Backend)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 1 [0 1 2 3] local
	// <nil>
}

// A program that pins threads adds them to the line.
func ExampleTopology_Summary() {
	where := cohort.Topology{
		Backend: "mpi", Library: "MPICH 4.0.2", Scheduler: "Slurm job 4711.0",
		Hosts: []cohort.Host{{Name: "n01", Ranks: []int{0, 1}}, {Name: "n02", Ranks: []int{2, 3}}},
	}
	s := where.Summary()
	s.Threads, s.Policy = 8, topo.Cores
	fmt.Println(s)
	// Output: 4 ranks on 2 nodes: n01: 0-1, n02: 2-3; 8 threads per rank pinned to cores; mpi (MPICH 4.0.2); Slurm job 4711.0
}
