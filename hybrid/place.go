package hybrid

import (
	"slices"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// place is a rank's place among the ranks that may use the same processors.
type place struct {
	rank, size int
	threads    int // the largest number of threads of these ranks
	// partly is set if other ranks may use some of these processors, but not the same set. Such
	// processors are not divided.
	partly bool
}

// findPlace exchanges which processors the ranks of a node may use and how many threads they
// have. A launcher that binds ranks gives each its own processors. Ranks that are goroutines of one
// process share all.
//
// Collective: all ranks of node call it.
func findPlace(node *cohort.Comm, mine topo.CPUSet, threads int) (place, error) {
	words := 0
	if len(mine) > 0 {
		words = mine[len(mine)-1]/64 + 1
	}
	words, err := cohort.AllreduceOne(node, words, cohort.Max)
	if err != nil {
		return place{}, err
	}
	// Each rank's threads, and then its processors as bits.
	width := 1 + words
	send := make([]uint64, width)
	send[0] = uint64(threads)
	for _, cpu := range mine {
		send[1+cpu/64] |= 1 << (cpu % 64)
	}
	all := make([]uint64, node.Size()*width)
	if err := cohort.Allgather(node, send, all); err != nil {
		return place{}, err
	}
	var sets []topo.CPUSet
	p := place{threads: threads}
	for one := range slices.Chunk(all, width) {
		var set topo.CPUSet
		for i, word := range one[1:] {
			for bit := range 64 {
				if word>>bit&1 == 1 {
					set = append(set, 64*i+bit)
				}
			}
		}
		sets = append(sets, set)
		switch {
		case set.Equal(mine):
			p.threads = max(p.threads, int(one[0]))
		case len(set.Intersect(mine)) > 0:
			p.partly = true
		}
	}
	p.rank, p.size = topo.Sharers(sets, node.Rank())
	return p, nil
}

// planFor returns how the threads of the ranks that share this rank's processors are spread over
// them. Each rank gets room for the largest number of threads of any of them.
func planFor(machine *topo.Node, p place, pin pool.Pinning) (*topo.Plan, error) {
	policy, err := topo.ParsePolicy(string(pin))
	if err != nil {
		return nil, err
	}
	return machine.Plan(p.size, p.threads, policy)
}

// startPool starts a rank's workers on its part of a plan.
func startPool(cfg pool.Config, plan *topo.Plan, p place) (*pool.Pool, error) {
	cfg.LocalRank, cfg.LocalSize = p.rank, p.size
	if cfg.Threads != p.threads && cfg.Pin != pool.None {
		// Without CPUs, the pool would plan as if all ranks had this rank's number of threads.
		for _, set := range plan.Sets[p.rank][:cfg.Threads] {
			cfg.CPUs = append(cfg.CPUs, set)
		}
	}
	return pool.New(cfg)
}
