package pool

import (
	"errors"
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
		shares, err := node.Share(cfg.LocalRank, cfg.LocalSize, cfg.Threads, policy)
		if err != nil && !errors.Is(err, topo.ErrCrowded) { // Describe reports ErrCrowded
			return nil, faultf(backend.ErrInit, "%v", err)
		}
		for _, s := range shares {
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

// describe formats where workers are pinned: "4 workers pinned to cores: 0-3 to processors 0-3, one
// each; memory local".
func describe(cfg Config, workers []*worker) string {
	n := len(workers)
	s := fmt.Sprintf("%d workers", n)
	if n == 1 {
		s = "1 worker"
	}
	if !slices.ContainsFunc(workers, func(w *worker) bool { return len(w.cpus) > 0 }) {
		return s + ", not pinned"
	}
	for _, w := range workers {
		if w.unpinned != nil {
			return s + ", not pinned: " + w.unpinned.Error()
		}
	}
	s += " pinned"
	switch {
	case cfg.CPUs != nil:
	case cfg.Pin == Cores:
		s += " to cores"
	case cfg.Pin == NUMA:
		s += " to NUMA domains"
	}
	var parts []string
	var all []int // processors
	pinned := 0   // workers
	for lo := 0; lo < n; {
		// Join neighbors that have the same processors, or successive single ones.
		same, rising := lo+1, lo+1
		for same < n && slices.Equal(workers[same].cpus, workers[lo].cpus) {
			same++
		}
		for rising < n && len(workers[lo].cpus) == 1 && slices.Equal(workers[rising].cpus, []int{workers[rising-1].cpus[0] + 1}) {
			rising++
		}
		hi := max(same, rising)
		who := make([]int, 0, hi-lo)
		var cpus []int
		for _, w := range workers[lo:hi] {
			who = append(who, w.id)
			cpus = append(cpus, w.cpus...)
		}
		part := topo.NewCPUSet(who...).String()
		if len(cpus) == 0 {
			part += " free"
		} else {
			pinned += hi - lo
			all = append(all, cpus...)
			word := " to processors "
			if len(topo.NewCPUSet(cpus...)) == 1 {
				word = " to processor "
			}
			part += word + topo.NewCPUSet(cpus...).String()
		}
		if rising > same {
			part += ", one each"
		}
		parts = append(parts, part)
		lo = hi
	}
	s += ": " + strings.Join(parts, "; ")
	if pinned > len(topo.NewCPUSet(all...)) {
		s += "; more workers than processors"
	}
	for _, w := range workers {
		if w.policy != nil {
			return s + "; memory policy not changed: " + w.policy.Error()
		}
	}
	return s + "; memory local"
}
