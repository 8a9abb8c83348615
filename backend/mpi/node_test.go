//go:build linux

package mpi

import (
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

func TestOversubscribedCountsProcessorsOfNode(t *testing.T) {
	const openmpi, mpich = "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_RANK PMI_SIZE MPI_LOCALNRANKS"
	for _, c := range []struct {
		names     string // of the variables with rank 0, size 8, and the number of ranks on the node
		local     string
		permitted string
		time      float64 // processors' worth of it; 0: no limit
		want      bool
	}{
		{openmpi, "4", "0-1", 0, true},
		{openmpi, "2", "0-1", 0, false},
		{mpich, "5", "0-1,3,6-7", 0, false},
		{mpich, "6", "0-1,3,6-7", 0, true},
		{mpich, "6", "", 0, false},
		{mpich, "many", "0", 0, false},
		{mpich, "6", "0-7", 6, false},
		{mpich, "6", "0-7", 5.5, true},
		{"A B C", "6", "0", 0, false},
	} {
		job := topo.ReadJob(func(name string) (string, bool) {
			i := slices.Index(strings.Fields(c.names), name)
			if i < 0 {
				return "", false
			}
			return []string{"0", "8", c.local}[i], true
		}, nil)
		permitted, err := topo.ParseCPUSet(c.permitted)
		if err != nil {
			t.Fatal(err)
		}
		// The rank itself is bound to one processor.
		node := &topo.Node{CPUs: topo.NewCPUSet(0), Permitted: permitted, Limits: topo.Limits{CPU: c.time}}
		if got := oversubscribed(job, node); got != c.want {
			t.Errorf("%s: 0 8 %s with processors %q, time of %v: %v, want %v", c.names, c.local, c.permitted, c.time, got, c.want)
		}
	}
	if node, err := topo.Here(); err != nil || len(node.Permitted.Intersect(node.CPUs)) == 0 {
		t.Errorf("this machine's processors: %v, %v", node, err)
	}
}

func TestNodeRecordsNumberNodes(t *testing.T) {
	long := strings.Repeat("n", maxHostName)
	for _, c := range []struct {
		lowest []byte // of each rank: a small number
		names  []string
		nodes  []int
		hosts  []string
	}{
		{[]byte{0}, []string{"n01"}, []int{0}, []string{"n01"}},
		{[]byte{0, 0, 2, 2}, []string{"n01", "n01", "n02", "n02"}, []int{0, 0, 1, 1}, []string{"n01", "n02"}},
		{[]byte{0, 1, 0, 1}, []string{"b", "a", "b", "a"}, []int{0, 1, 0, 1}, []string{"b", "a"}},
		{[]byte{0, 1, 1}, []string{"box", "box", "box"}, []int{0, 1, 1}, []string{"box", "box"}},
		// A node has the name that its lowest rank reports.
		{[]byte{0, 0, 2}, []string{"one", "same", ""}, []int{0, 0, 1}, []string{"one", ""}},
		{[]byte{0, 1}, []string{long, long + "x"}, []int{0, 1}, []string{long, long}},
	} {
		var all []byte
		for r, low := range c.lowest {
			all = append(all, nodeRecord([]byte{low, 0, 0, 0, 0, 0, 0, 0}, c.names[r])...)
		}
		nodes, hosts := readNodes(all)
		if !slices.Equal(nodes, c.nodes) || !slices.Equal(hosts, c.hosts) {
			t.Errorf("%v, %q: got %v, %q, want %v, %q", c.lowest, c.names, nodes, hosts, c.nodes, c.hosts)
		}
	}
}
