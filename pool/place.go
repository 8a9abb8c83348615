package pool

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

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

// describe formats where workers are pinned, with the processors of each: "4 workers pinned to NUMA domains: processors
// 0-1 0-1 2-3 2-3; memory local".
func describe(cfg Config, workers []*worker) string {
	n := len(workers)
	s := fmt.Sprintf("%d workers", n)
	if n == 1 {
		s = "1 worker"
	}
	var sets []string
	var all []int // processors
	pinned := 0   // workers
	var unpinned, policy error
	for _, w := range workers {
		set := "any"
		if len(w.cpus) > 0 {
			pinned++
			all = append(all, w.cpus...)
			set = topo.NewCPUSet(w.cpus...).String()
		}
		sets = append(sets, set)
		unpinned, policy = cmp.Or(unpinned, w.unpinned), cmp.Or(policy, w.policy)
	}
	switch {
	case unpinned != nil:
		return s + ", not pinned: " + unpinned.Error()
	case pinned == 0:
		return s + ", not pinned"
	}
	s += " pinned"
	switch {
	case cfg.CPUs != nil:
	case cfg.Pin == Cores:
		s += " to cores"
	case cfg.Pin == NUMA:
		s += " to NUMA domains"
	}
	s += ": processors " + strings.Join(sets, " ")
	if pinned > len(topo.NewCPUSet(all...)) {
		s += "; more workers than processors"
	}
	if policy != nil {
		return s + "; memory policy not changed: " + policy.Error()
	}
	return s + "; memory local"
}
