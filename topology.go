package cohort

import (
	"os"
	"strconv"
	"sync"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/topo"
)

// Topology describes where the ranks of a communicator run and what carries their messages.
type Topology struct {
	Backend string // local, shm, tcp or mpi
	// Library is the MPI library, such as "MPICH 4.0.2". Version is the version of the
	// standard that it supports, such as "MPI 4.0". ThreadLevel is its thread level, by MPI's
	// name. All three are empty for the other backends.
	Library, Version, ThreadLevel string
	// Scheduler is the batch system and the job, such as "Slurm job 4711.0". It is empty if
	// there is none.
	Scheduler string
	Hosts     []Host // in the order of their lowest ranks
}

// Host is a node and its ranks. Two nodes may have the same name, as containers may.
type Host = topo.Host

// Topology returns where c's ranks run. A node has the name that the scheduler gives it, or else its
// host name. Another node whose name the backend does not provide is called "node" and a number.
// [topo.Here] describes the node itself.
func (c *Comm) Topology() Topology {
	caps := c.Caps()
	t := Topology{Backend: caps.Backend, Library: caps.Library, Version: caps.Standard, ThreadLevel: caps.ThreadLevel}
	bc := c.base().Backend()
	if bc == nil {
		return t
	}
	t.Scheduler = thisJob().Batch()
	here := bc.NodeOf(c.Rank())
	at := make(map[int]int) // index in Hosts by node
	for r := range c.Size() {
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
	name := bc.HostOf(rank)
	if name == "" && here {
		own, _ := os.Hostname()
		name = thisJob().HostName(own)
	}
	if name == "" {
		name = "node" + strconv.Itoa(bc.NodeOf(rank))
	}
	return name
}

// Summary returns the topology for the line that a program prints when it starts. The program can add
// its threads.
func (t Topology) Summary() topo.Summary {
	return topo.Summary{
		Hosts: t.Hosts, Backend: t.Backend, Library: t.Library, Version: t.Version, ThreadLevel: t.ThreadLevel, Scheduler: t.Scheduler,
	}
}

// String returns the topology in one line, such as "8 ranks on 2 nodes: n01: 0-3, n02: 4-7; mpi (MPICH
// 4.0.2, MPI 4.0, threads: multiple); Slurm job 4711.0".
func (t Topology) String() string { return t.Summary().String() }
