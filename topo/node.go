package topo

import "math"

// Node is this node as far as this process may use it.
type Node struct {
	// Host is the node's own name, Model what its processors call themselves.
	Host, Model string
	// CPUs are the usable logical processors. There is at least one.
	CPUs CPUSet
	// Online are all the processors that the node has running; nil if not known.
	Online CPUSet
	// Permitted are those of them that the cpusets of control groups leave this
	// process, whatever its affinity mask: what ranks have in common that a launcher
	// has bound to some each; nil if not known.
	Permitted CPUSet
	// Packages are the sockets, ascending by ID; nil where the system names none.
	Packages []Package
	// Cores are the physical cores in the order in which they are shared out:
	// those of one NUMA domain together, in it those with a last-level cache in
	// common, there by number.
	Cores []Core
	// Domains are the NUMA domains, ascending by ID, that have usable processors
	// or memory for this process. Where the system reports none, all is one
	// domain, of ID 0 and with the memory of the machine.
	Domains []Domain
	// Caches are by level, then type, then by their lowest processor.
	Caches []Cache
	// Memory is the machine's, whatever this process may have of it.
	Memory Memory
	// HugePages are those that the machine has set aside, by size.
	HugePages []HugePages
	// TransparentHugePages is the mode in which the kernel uses huge pages by
	// itself: always, madvise or never.
	TransparentHugePages string
	// Limits are what the control groups allow.
	Limits Limits
	// Binding reports whether threads can be bound to processors here.
	Binding bool

	// within is how much memory the domains have that this process is restricted
	// to; 0 if it may use all.
	within int64
}

// Package is a socket.
type Package struct {
	ID   int
	CPUs CPUSet // usable
}

// Core is a physical core.
type Core struct {
	// CPUs are its usable hardware threads. There is at least one.
	CPUs CPUSet
	// Domain is the ID of its NUMA domain, Package that of its socket, -1 if not
	// known.
	Domain, Package int
	// Class is 0 for the fastest kind of core that the usable ones have, 1 for the
	// next. Most machines have cores of one kind.
	Class int
}

// Domain is a NUMA domain: processors and memory near each other, or memory alone.
type Domain struct {
	ID   int
	CPUs CPUSet // usable; nil for memory alone
	// Memory is how many bytes there are, Free how many are unused. What the
	// system uses to cache files is not free, though most of it can be had.
	Memory, Free int64
	// Allowed reports whether this process may take memory from it.
	Allowed bool
	// Distances are those to the domains of the node in their order, relative to
	// 10 for the domain itself; nil if not known.
	Distances []int
	// HugePages are those set aside in this domain, by size.
	HugePages []HugePages
}

// Cache is one cache.
type Cache struct {
	Level int
	Type  string // Data, Instruction or Unified
	Size  int64  // bytes
	Line  int    // bytes
	CPUs  CPUSet // the usable processors that share it
}

// Memory is the machine's memory in bytes.
type Memory struct {
	Total, Free int64
	// Available is an estimate of what programs can have without swapping.
	Available int64
}

// HugePages are the huge pages of one size that the system has set aside.
type HugePages struct {
	Size        int64 // bytes of a page
	Total, Free int   // pages
}

// Limits are what control groups allow a process; 0 is no limit.
type Limits struct {
	CPU    float64 // processors' worth of time
	Memory int64   // bytes
	Procs  int     // processes and threads
}

// Usable returns how many threads can run at the same time: the number of usable
// processors, fewer where a control group allows less time, at least 1.
func (n *Node) Usable() int {
	k := len(n.CPUs)
	if n.Limits.CPU > 0 {
		// A quota of 3.999 is one of 4, written with a short period.
		k = min(k, int(math.Floor(min(n.Limits.CPU, maxCPU)+0.01)))
	}
	return max(k, 1)
}

// MemoryLimit returns how many bytes this process and those beside it in its
// control groups can have at most: the machine's memory, less where a group
// allows less or the memory of some domains only; 0 if not known.
func (n *Node) MemoryLimit() int64 {
	most := n.Memory.Total
	for _, l := range []int64{n.within, n.Limits.Memory} {
		if l > 0 && (most == 0 || l < most) {
			most = l
		}
	}
	return most
}

// DomainsOf returns the IDs of the NUMA domains that have processors of a set.
func (n *Node) DomainsOf(set CPUSet) []int {
	var ids []int
	for _, d := range n.Domains {
		if len(d.CPUs.Intersect(set)) > 0 {
			ids = append(ids, d.ID)
		}
	}
	return ids
}
