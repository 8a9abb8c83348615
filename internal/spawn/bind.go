package spawn

import (
	"fmt"

	"github.com/cohort-hpc/cohort/topo"
)

// Bind selects what ranks are bound to.
type Bind string

// The ways to bind.
const (
	BindAuto Bind = ""     // BindCore if every rank can have its own processor, else BindNone
	BindNone Bind = "none" // ranks run where the launcher may
	BindCore Bind = "core" // each rank has its share of the cores
	BindNUMA Bind = "numa" // each rank has its share of the NUMA domains, or shares one with its neighbors
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

// Place returns the processors of each of n ranks on a node, or nil if ranks are not
// bound.
//
// With BindCore, if there are fewer ranks than NUMA domains, each rank gets an even
// share of the cores, in order. Otherwise [topo.Node.Plan] places as many threads for
// each rank as it can have cores, within one domain if all ranks fit that way. If
// there are more ranks than cores, they share the hardware threads; if there are more
// ranks than hardware threads, neighboring ranks share one.
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
		if len(d.CPUs) > 0 { // some domains have memory only
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
