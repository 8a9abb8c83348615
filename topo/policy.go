package topo

import "fmt"

// Policy says how threads are bound to processors.
type Policy int

const (
	// None binds no thread: each may run on all processors of the process.
	None Policy = iota
	// Cores gives every thread its own core, or a hardware thread if cores are short.
	Cores
	// NUMA lets every thread run on the processors of its rank's share in one NUMA domain.
	NUMA
)

// ParsePolicy returns the policy with a name: none, cores or numa.
func ParsePolicy(name string) (Policy, error) {
	for p := None; p <= NUMA; p++ {
		if p.String() == name {
			return p, nil
		}
	}
	return None, fmt.Errorf("policy %s; want none, cores or numa", quote(name))
}

// String returns the name of the policy.
func (p Policy) String() string {
	switch p {
	case None:
		return "none"
	case Cores:
		return "cores"
	case NUMA:
		return "numa"
	}
	return fmt.Sprintf("Policy(%d)", int(p))
}
