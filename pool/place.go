package pool

import (
	"runtime"
	"slices"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/topo"
)

// place returns the processors of each worker, empty for a worker that is not pinned.
func place(cfg Config) ([][]int, error) {
	sets := cfg.CPUs
	if sets == nil && cfg.Pin != None {
		policy, err := topo.ParsePolicy(string(cfg.Pin))
		if err != nil {
			return nil, faultf(backend.ErrInit, "%v", err)
		}
		node, err := topo.Here()
		if err != nil {
			return nil, faultf(backend.ErrInit, "%v; use the policy none", err)
		}
		plan, err := node.Plan(cfg.LocalSize, cfg.Threads, policy)
		if err != nil {
			return nil, faultf(backend.ErrInit, "%v", err)
		}
		for _, s := range plan.Sets[cfg.LocalRank] {
			sets = append(sets, s)
		}
	}
	pinned := slices.ContainsFunc(sets, func(set []int) bool { return len(set) > 0 })
	if pinned && !canPin {
		return nil, faultf(backend.ErrNotSupported, "threads cannot be pinned on %s; use the policy none", runtime.GOOS)
	}
	if sets == nil {
		sets = make([][]int, cfg.Threads)
	}
	return sets, nil
}
