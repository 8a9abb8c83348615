package topo_test

import (
	"fmt"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

// twoSockets is a machine with two NUMA domains of two cores.
var twoSockets = fstest.MapFS{
	"proc/sys/kernel/hostname":              {Data: []byte("n01\n")},
	"sys/devices/system/cpu/online":         {Data: []byte("0-3\n")},
	"sys/devices/system/node/online":        {Data: []byte("0-1\n")},
	"sys/devices/system/node/node0/cpulist": {Data: []byte("0-1\n")},
	"sys/devices/system/node/node1/cpulist": {Data: []byte("2-3\n")},
}

func ExampleRead() {
	node, err := topo.Read(twoSockets, nil) // topo.Here() for this machine
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(node)
	// Output:
	// n01: 4 processors (0-3), 4 cores, 2 NUMA domains
}

func ExampleNode_Plan() {
	node, err := topo.Read(twoSockets, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := node.Plan(2, 3, topo.Cores)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Sets)
	fmt.Println(plan.Note())
	// Output:
	// [[0 1 0] [2 3 2]]
	// 6 threads on 4 processors: they take turns
}

func ExampleSharers() {
	// Four ranks that a launcher has bound to two NUMA domains.
	masks := []topo.CPUSet{topo.NewCPUSet(0, 1), topo.NewCPUSet(0, 1), topo.NewCPUSet(2, 3), topo.NewCPUSet(2, 3)}
	for r := range masks {
		rank, size := topo.Sharers(masks, r)
		fmt.Printf("rank %d is %d of %d\n", r, rank, size)
	}
	// Output:
	// rank 0 is 0 of 2
	// rank 1 is 1 of 2
	// rank 2 is 0 of 2
	// rank 3 is 1 of 2
}

func ExampleReadJob() {
	environment := map[string]string{
		"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "n[01-02]",
		"SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "4,3",
		"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_CPUS_PER_TASK": "lots",
	}
	job := topo.ReadJob(func(name string) (string, bool) { // topo.ThisJob() for this process
		v, ok := environment[name]
		return v, ok
	}, nil)
	fmt.Println(job)
	fmt.Println(job.Hosts, job.TasksPerNode, job.LocalSize, job.CPUsPerTask)
	fmt.Println(job.Problems[0])
	// Output:
	// Slurm job 4711.0, 2 nodes; srun: rank 5 of 7, 1 of 3 on its node
	// [n01 n02] [4 3] 3 0
	// SLURM_CPUS_PER_TASK="lots": not a number from 0 to 2147483647
}

func ExampleExpandHosts() {
	hosts, err := topo.ExpandHosts("n[08-10],gpu-[1-2]x[3-4]")
	fmt.Println(hosts, err)
	_, err = topo.ExpandHosts("n[0-999999999]")
	fmt.Println(err)
	// Output:
	// [n08 n09 n10 gpu-1x3 gpu-1x4 gpu-2x3 gpu-2x4] <nil>
	// topo: not a list of nodes: "n[0-999999999]": more than 65536 names
}

func ExampleExpandCounts() {
	fmt.Println(topo.ExpandCounts("4(x2),3"))
	// Output: [4 4 3] <nil>
}

func ExampleSummary() {
	fmt.Println(topo.Summary{
		Hosts:   []topo.Host{{Name: "n01", Ranks: []int{0, 1, 2, 3}}, {Name: "n02", Ranks: []int{4, 5, 6, 7}}},
		Threads: 2, Policy: topo.NUMA, Sets: []topo.CPUSet{topo.NewCPUSet(0, 1), topo.NewCPUSet(0, 1)},
		Backend: "shm",
	})
	// Output: 8 ranks on 2 nodes: n01: 0-3, n02: 4-7; 2 threads per rank pinned to NUMA domains (rank 0: 0-1); shm
}
