package main

import (
	"fmt"
	"io/fs"
	"slices"

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
	text := fmt.Sprintf("%s, --bind %s; %s in each, --pin %s", job.Count(p.ranks, "rank"), bind, job.Count(resolved.Threads, "thread"), resolved.Pin)
	s := ok
	if p.ranks*resolved.Threads > n.Usable() {
		s = warn
	}
	d.add(group, "ranks", s, text, all.Note())
	if places == nil && policy == topo.None {
		return // all ranks have all processors
	}
	for r := range min(p.ranks, shownRanks) {
		cpus, sets := all.Parts[r], all.Sets[r]
		if places != nil { // a bound rank sees only its own processors, and shares them with no other rank
			cpus = places[r]
			own, err := topo.Read(files, cpus)
			var plan *topo.Plan
			if err == nil {
				plan, err = own.Plan(1, resolved.Threads, policy)
			}
			if err != nil {
				d.detail("rank %d: %v", r, err)
				continue
			}
			sets = plan.Sets[0]
		}
		line := fmt.Sprintf("rank %d:", r)
		for i, set := range slices.CompactFunc(sets, topo.CPUSet.Equal) { // once those of threads that have the same
			line += []string{" ", " | "}[min(i, 1)] + set.String()
		}
		if len(n.Domains) > 1 {
			line += fmt.Sprintf(" (domain %v)", topo.NewCPUSet(n.DomainsOf(cpus)...))
		}
		d.detail("%s", line)
	}
	if p.ranks > shownRanks {
		d.detail("… and %d more", p.ranks-shownRanks)
	}
}
