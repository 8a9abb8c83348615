package spawn

import "fmt"

// Bind says to what ranks are bound.
type Bind string

// The ways to bind. Share is a contiguous part as equal as can be.
const (
	BindAuto Bind = ""     // BindCore where every rank can have a processor of its own, else BindNone
	BindNone Bind = "none" // ranks run where the launcher may
	BindCore Bind = "core" // each rank has its share of the cores, or the one at rank mod processors
	BindNUMA Bind = "numa" // each rank has its share of the NUMA nodes, or shares one with its neighbours
)

// ParseBind reads a name of a way to bind.
func ParseBind(s string) (Bind, error) {
	switch b := Bind(s); b {
	case BindNone, BindCore, BindNUMA:
		return b, nil
	}
	return "", fmt.Errorf("%q is none of core, numa, none", s)
}

// Place returns the processors of each of n ranks, nil for all when they are not
// bound.
//
// With BindCore: up to as many ranks as physical cores, each gets whole cores;
// up to as many as logical processors, each gets its share of those, the
// hardware threads of a core to neighbours; beyond, they go round.
func (m *Machine) Place(b Bind, n int) ([]CPUs, error) {
	if b == BindAuto {
		b = BindNone
		if m.Pinning && n <= m.Usable() {
			b = BindCore
		}
	}
	if b == BindNone {
		return nil, nil
	}
	if !m.Pinning {
		return nil, fmt.Errorf("binding ranks to processors is not supported on this system; use --bind none")
	}
	places := make([]CPUs, n)
	for i := range n {
		switch {
		case b == BindNUMA && n <= len(m.Nodes):
			places[i] = share(m.Nodes, i, n)
		case b == BindNUMA:
			places[i] = m.Nodes[i*len(m.Nodes)/n]
		case n <= len(m.Cores):
			places[i] = share(m.Cores, i, n)
		case n <= len(m.CPUs):
			places[i] = m.CPUs[i*len(m.CPUs)/n : (i+1)*len(m.CPUs)/n]
		default:
			places[i] = CPUs{m.CPUs[i%len(m.CPUs)]}
		}
	}
	return places, nil
}

// share joins the i-th of n contiguous parts of sets.
func share(sets []CPUs, i, n int) CPUs {
	var s CPUs
	for _, set := range sets[i*len(sets)/n : (i+1)*len(sets)/n] {
		s = append(s, set...)
	}
	return s
}
