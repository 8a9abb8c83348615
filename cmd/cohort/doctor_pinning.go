package main

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/cohort-hpc/cohort/internal/job"
	"github.com/cohort-hpc/cohort/internal/spawn"
	"github.com/cohort-hpc/cohort/pool"
	"github.com/cohort-hpc/cohort/topo"
)

// pinning is how to bind ranks and to pin their threads. Unset fields have the
// defaults of cohort run and package pool.
type pinning struct {
	ranks, threads int
	bind           spawn.Bind
	pin            pool.Pinning
}

// shownRanks is the number of ranks whose places are listed.
const shownRanks = 8

// pinning reports where ranks and threads would run on a node that is described in
// files.
func (d *diagnosis) pinning(files fs.FS, n *topo.Node, p pinning, env func(string) (string, bool)) {
	const group = "pinning"
	resolved, err := pool.Config{Threads: p.threads, Pin: p.pin, Env: env}.Resolved()
	if err != nil {
		d.add(group, "threads", warn, err.Error(), "programs that use package pool stop with this error")
		return
	}
	policy, err := topo.ParsePolicy(string(resolved.Pin))
	if err != nil {
		d.add(group, "threads", warn, err.Error(), "")
		return
	}
	if p.ranks == 0 {
		p.ranks = defaultRanks(n)
	}
	bind := p.bind.Choose(n, p.ranks)
	places, err := spawn.Place(n, bind, p.ranks)
	if err != nil {
		d.add(group, "ranks", warn, err.Error(), "")
		return
	}
	all, err := n.Plan(p.ranks, resolved.Threads, policy)
	if err != nil {
		d.add(group, "threads", warn, err.Error(), "")
		return
	}
	text := job.Count(p.ranks, "rank")
	switch bind {
	case spawn.BindNone:
		text += ", not bound"
	case spawn.BindCore:
		text += ", bound to a share of the cores"
	case spawn.BindNUMA:
		text += ", bound to a share of the NUMA domains"
	}
	if bind != spawn.BindNone && p.ranks > 1 {
		text += " each"
	}
	text += fmt.Sprintf("; %s in each", job.Count(resolved.Threads, "thread"))
	switch policy {
	case topo.None:
		text += ", not pinned"
	case topo.Cores:
		text += ", pinned to cores"
	case topo.NUMA:
		text += ", pinned to NUMA domains"
	}
	s := ok
	if p.ranks*resolved.Threads > n.Usable() {
		s = warn
	}
	d.add(group, "ranks", s, text, all.Note())
	for r := range min(p.ranks, shownRanks) {
		sets, cpus := all.Sets[r], n.CPUs
		if places != nil {
			// A bound rank sees only its own processors, and shares them with no other rank.
			if cpus = places[r]; policy != topo.None {
				own, err := topo.Read(files, cpus)
				if err == nil {
					sets, err = own.Share(0, 1, resolved.Threads, policy)
				}
				if sets == nil {
					d.detail("rank %d: %v", r, err)
					continue
				}
			}
		} else if policy == topo.None {
			break // all ranks have all processors
		}
		line := fmt.Sprintf("rank %d: %v", r, cpus)
		if policy != topo.None {
			line = fmt.Sprintf("rank %d: %s", r, eachThread(sets))
		}
		if len(n.Domains) > 1 {
			line += " (" + inDomains(n, cpus, sets, policy) + ")"
		}
		d.detail("%s", line)
	}
	if p.ranks > shownRanks && (places != nil || policy != topo.None) {
		d.detail("… and %d more", p.ranks-shownRanks)
	}
}

// eachThread writes the processors of a rank's threads, those of neighbors that
// have the same once.
func eachThread(sets []topo.CPUSet) string {
	var all []string
	for i := 0; i < len(sets); {
		k := i
		for k < len(sets) && sets[k].Equal(sets[i]) {
			k++
		}
		text := sets[i].String()
		if k > i+1 {
			text = fmt.Sprintf("%d × %s", k-i, text)
		}
		if len(all) == shownRanks {
			return strings.Join(append(all, "…"), " | ")
		}
		all = append(all, text)
		i = k
	}
	return strings.Join(all, " | ")
}

// inDomains names the NUMA domains in which a rank runs.
func inDomains(n *topo.Node, cpus topo.CPUSet, sets []topo.CPUSet, policy topo.Policy) string {
	if policy != topo.None {
		cpus = nil
		for _, s := range sets {
			cpus = cpus.Union(s)
		}
	}
	ids := n.DomainsOf(cpus)
	word := "domain "
	if len(ids) > 1 {
		word = "domains "
	}
	return word + topo.NewCPUSet(ids...).String()
}
