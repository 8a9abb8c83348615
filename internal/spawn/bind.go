package spawn

import (
	"fmt"

	"github.com/cohort-hpc/cohort/topo"
)

// Bind says to what ranks are bound.
type Bind string

// The ways to bind.
const (
	BindAuto Bind = ""     // BindCore where every rank can have a processor of its own, else BindNone
	BindNone Bind = "none" // ranks run where the launcher may
	BindCore Bind = "core" // each rank has its share of the cores
	BindNUMA Bind = "numa" // each rank has its share of the NUMA domains, or shares one with its neighbours
)

// ParseBind reads a name of a way to bind.
func ParseBind(s string) (Bind, error) {
	switch b := Bind(s); b {
	case BindNone, BindCore, BindNUMA:
		return b, nil
	}
	return "", fmt.Errorf("got %q, want core, numa or none", s)
}

// Choose returns what ranks are bound to on a node: b, or what BindAuto stands for.
func (b Bind) Choose(node *topo.Node, ranks int) Bind {
	switch {
	case b != BindAuto:
		return b
	case node.Binding && ranks <= node.Usable():
		return BindCore
	}
	return BindNone
}

// Place returns the processors of each of n ranks on a node, nil for all when they
// are not bound.
//
// With BindCore fewer ranks than NUMA domains have even parts of the cores, in
// order. Others have what [topo.Node.Plan] gives to as many threads as every rank can
// have cores, which are in one domain for each rank if all ranks fit so. More ranks
// than cores share out the hardware threads, and more than these take turns,
// neighbours with each other.
func Place(node *topo.Node, b Bind, n int) ([]topo.CPUSet, error) {
	b = b.Choose(node, n)
	if b == BindNone {
		return nil, nil
	}
	if !node.Binding {
		return nil, fmt.Errorf("binding is not supported on this system; use --bind none")
	}
	var domains, cores []topo.CPUSet
	for _, d := range node.Domains {
		if len(d.CPUs) > 0 { // there are domains of memory alone
			domains = append(domains, d.CPUs)
		}
	}
	for _, c := range node.Cores {
		cores = append(cores, c.CPUs)
	}
	switch {
	case b == BindNUMA:
		return divide(domains, n), nil
	case n < len(domains):
		return divide(cores, n), nil
	}
	plan, err := node.Plan(n, max(1, len(node.Cores)/n), topo.Cores)
	if err != nil {
		return nil, err
	}
	return plan.Parts, nil
}

// divide gives n ranks even contiguous shares of sets, or one set to several ranks.
func divide(sets []topo.CPUSet, n int) []topo.CPUSet {
	places := make([]topo.CPUSet, n)
	for i := range places {
		first, end := i*len(sets)/n, (i+1)*len(sets)/n
		for _, set := range sets[first:max(end, first+1)] {
			places[i] = places[i].Union(set)
		}
	}
	return places
}
