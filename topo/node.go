package topo

import "math"

// Node describes this node as far as this process may use it.
type Node struct {
	// Host is the node's own name, and Model the name of its processors.
	Host, Model string
	// CPUs are the usable logical processors. There is at least one.
	CPUs CPUSet
	// Online are all running processors of the node; nil if not known.
	Online CPUSet
	// Permitted are the running processors that the cpusets of control groups allow this process,
	// regardless of its affinity mask. Ranks that a launcher has bound to different processors have
	// this set in common. It is nil if not known.
	Permitted CPUSet
	// Packages are the sockets, ascending by ID; nil if not known.
	Packages []Package
	// Cores are the physical cores in the order in which they are assigned to ranks: by NUMA
	// domain, then by last-level cache, then by number.
	Cores []Core
	// Domains are the NUMA domains with usable processors or memory, ascending by ID. If the system
	// reports none, one domain of ID 0 has all processors and memory.
	Domains []Domain
	// Caches are ordered by level, type, and lowest processor.
	Caches []Cache
	// Memory is the machine's memory, including what this process may not use.
	Memory Memory
	// Limits are those of the control groups.
	Limits Limits
	// Binding reports whether threads can be bound to processors here.
	Binding bool

	// within is the memory of the domains that this process is restricted to; 0 if it may use all.
	within int64
}

// Package is a socket.
type Package struct {
	ID   int
	CPUs CPUSet // usable
}

// Core is a physical core.
type Core struct {
	// CPUs are the usable hardware threads. There is at least one.
	CPUs CPUSet
	// Domain is the ID of the NUMA domain, and Package that of the socket; -1 if not known.
	Domain, Package int
	// Class is 0 for the fastest kind of usable core, 1 for the next, and so on. Most machines have
	// cores of one kind.
	Class int
}

// Domain is a NUMA domain: processors and the memory near them, or memory alone.
type Domain struct {
	ID   int
	CPUs CPUSet // usable; nil for memory alone
	// Memory is the size in bytes, and Free the unused part. Memory that the system uses to cache
	// files is not free, though most of it can be reclaimed.
	Memory, Free int64
	// Allowed reports whether this process may allocate memory in the domain.
	Allowed bool
}

// Cache is one cache.
type Cache struct {
	Level int
	Type  string // Data, Instruction or Unified
	Size  int64  // bytes
	CPUs  CPUSet // usable processors that share it
}

// Memory is the machine's memory in bytes.
type Memory struct {
	Total, Free int64
	// Available is an estimate of what programs can allocate without swapping.
	Available int64
}

// Limits are what control groups allow a process; 0 means no limit.
type Limits struct {
	CPU    float64 // processor time, in processors
	Memory int64   // bytes
	Procs  int     // processes and threads
}

// Usable returns how many threads can run at the same time: the number of usable processors, or
// fewer if a control group limits processor time. It is at least 1.
func (n *Node) Usable() int {
	k := len(n.CPUs)
	if n.Limits.CPU > 0 {
		// A quota of 3.999 means 4, written with a short period.
		k = min(k, int(math.Floor(min(n.Limits.CPU, maxCPU)+0.01)))
	}
	return max(k, 1)
}

// MemoryLimit returns the most memory in bytes that this process and the others in its control
// groups can have: the machine's memory, or less if a group limits memory or domains; 0 if not
// known.
func (n *Node) MemoryLimit() int64 {
	most := n.Memory.Total
	for _, l := range []int64{n.within, n.Limits.Memory} {
		if l > 0 && (most == 0 || l < most) {
			most = l
		}
	}
	return most
}

// DomainsOf returns the IDs of the NUMA domains with processors of a set.
func (n *Node) DomainsOf(set CPUSet) []int {
	var ids []int
	for _, d := range n.Domains {
		if len(d.CPUs.Intersect(set)) > 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
