package topo

import (
	"fmt"
	"slices"
	"strings"
)

// Host is a node of a job with its ranks.
type Host struct {
	Name  string
	Ranks []int // ascending
}

// Summary is a line about a job for its users. Empty fields are not printed.
type Summary struct {
	Hosts   []Host
	Backend string // "mpi"
	Library string // "MPICH 4.0.2"
	// Version is the version of the MPI standard, such as "MPI 4.0". ThreadLevel says which threads
	// may call the library, such as "multiple".
	Version, ThreadLevel string
	// Scheduler is the batch system and the job, as [Job.Batch] formats them.
	Scheduler string
	// Threads is the number of threads of each rank, Policy how they are bound, and Sets the
	// processors of rank 0's threads. If Threads is 0 they are not printed.
	Threads int
	Policy  Policy
	Sets    []CPUSet
	Notes   []string // possible improvements, such as [Plan.Note]
}

// maxNamed is the most nodes that are listed with their ranks.
const maxNamed = 8

// String formats the summary in one line:
//
//	8 ranks on 2 nodes: n01: 0-3, n02: 4-7; 16 threads per rank pinned to NUMA domains (rank 0: 0-15); mpi (MPICH 4.0.2); Slurm job 4711.0
func (s Summary) String() string {
	var parts []string
	if len(s.Hosts) > 0 {
		parts = append(parts, s.ranks())
	}
	if s.Threads > 0 {
		parts = append(parts, s.threads())
	}
	level := ""
	if s.ThreadLevel != "" {
		level = "threads: " + s.ThreadLevel
	}
	about := join(", ", s.Library, s.Version, level)
	if s.Backend != "" && about != "" {
		about = s.Backend + " (" + about + ")"
	} else {
		about = s.Backend + about
	}
	return join("; ", append(append(parts, about, s.Scheduler), s.Notes...)...)
}

func (s Summary) ranks() string {
	total, fewest, most := 0, len(s.Hosts[0].Ranks), 0
	var names []string
	for _, h := range s.Hosts {
		total += len(h.Ranks)
		fewest, most = min(fewest, len(h.Ranks)), max(most, len(h.Ranks))
		names = append(names, h.Name)
	}
	on := fmt.Sprintf("%s on %s", plural(total, "rank"), plural(len(s.Hosts), "node"))
	if len(s.Hosts) <= maxNamed {
		for i, h := range s.Hosts {
			names[i] += ": " + ranges(h.Ranks)
		}
		return on + ": " + strings.Join(names, ", ")
	}
	each := fmt.Sprintf("%d", fewest)
	if most > fewest {
		each = fmt.Sprintf("%d to %d", fewest, most)
	}
	return fmt.Sprintf("%s, %s on each: %s … %s", on, each, names[0], names[len(names)-1])
}

// threads formats the number of threads and the processors of rank 0's.
func (s Summary) threads() string {
	text := plural(s.Threads, "thread") + " per rank"
	switch s.Policy {
	case None:
		return text + ", not pinned"
	case Cores:
		text += " pinned to cores"
	case NUMA:
		text += " pinned to NUMA domains"
	}
	var sets []string
	for _, set := range s.Sets {
		if t := set.String(); len(sets) == 0 || sets[len(sets)-1] != t {
			sets = append(sets, t)
		}
	}
	if len(sets) == 0 {
		return text
	}
	// Single processors of threads read better as one set.
	if !slices.ContainsFunc(s.Sets, func(set CPUSet) bool { return len(set) != 1 }) {
		sets = []string{NewCPUSet(slices.Concat(s.Sets...)...).String()}
	}
	if len(sets) > maxNamed {
		sets = append(sets[:maxNamed:maxNamed], "…")
	}
	return text + " (rank 0: " + strings.Join(sets, " | ") + ")"
}
