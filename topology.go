package cohort

import (
	"os"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/topo"
)

// Topology says where the ranks of a communicator run, and over what.
type Topology struct {
	Backend string // local, shm, tcp or mpi
	// Library is the library beneath, such as "MPICH 4.0.2", Version the version of
	// the standard that it has, such as "MPI 4.0", and ThreadLevel how many threads
	// may call it, as MPI names that. They are empty for built-in backends.
	Library, Version, ThreadLevel string
	// Scheduler is the batch system with the job, such as "Slurm job 4711.0"; empty
	// where there is none.
	Scheduler string
	Hosts     []Host // in the order of their lowest ranks
}

// Host is one node and its ranks. Two nodes may have one name, as containers do.
type Host = topo.Host

// Topology returns where c's ranks run. Nodes have the names that the scheduler
// gives them, else their own; where the backend does not know another node's name,
// it is "node" and a number. What runs on the node itself, [topo.Here] says.
//
// Local.
func (c *Comm) Topology() Topology {
	caps := c.Caps()
	t := Topology{Backend: caps.Backend, Library: caps.Library, Version: caps.Standard, ThreadLevel: caps.ThreadLevel}
	if c == nil || c.core == nil {
		return t
	}
	bc := c.core.bc
	t.Scheduler = thisJob().Batch()
	here := bc.NodeOf(c.core.rank)
	at := make(map[int]int) // index in Hosts by node
	for r := range c.core.size {
		node := bc.NodeOf(r)
		i, ok := at[node]
		if !ok {
			i = len(t.Hosts)
			at[node] = i
			t.Hosts = append(t.Hosts, Host{Name: hostOf(bc, r, node == here)})
		}
		t.Hosts[i].Ranks = append(t.Hosts[i].Ranks, r)
	}
	return t
}

// thisJob is the job of this process.
var thisJob = sync.OnceValue(topo.ThisJob)

// hostOf returns the name of the node of a rank, which may be this one.
func hostOf(bc backend.Comm, rank int, here bool) string {
	name := ""
	if h, ok := bc.(backend.Hoster); ok {
		name = h.HostOf(rank)
	}
	if name == "" && here {
		own, _ := os.Hostname()
		name = thisJob().HostName(own)
	}
	if name == "" {
		name = "node" + strconv.Itoa(bc.NodeOf(rank))
	}
	return name
}

// Summary returns the topology as the beginning of the line that a program prints
// when it starts; what it knows of threads it adds.
func (t Topology) Summary() topo.Summary {
	return topo.Summary{
		Hosts: t.Hosts, Backend: t.Backend, Library: t.Library, Version: t.Version, ThreadLevel: t.ThreadLevel, Scheduler: t.Scheduler,
	}
}

// String returns the topology in one line: "8 ranks on 2 nodes: n01: 0-3, n02: 4-7;
// mpi (MPICH 4.0.2, MPI 4.0, threads: multiple); Slurm job 4711.0".
func (t Topology) String() string { return t.Summary().String() }
