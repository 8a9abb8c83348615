package topo

import "fmt"

// Policy is how threads are bound to processors.
type Policy int

const (
	// None binds no thread: each runs on any processor of the process.
	None Policy = iota
	// Cores gives every thread a core of its own, a hardware thread where there
	// are not enough cores.
	Cores
	// NUMA lets every thread run on the processors of its rank's share that are in
	// one NUMA domain.
	NUMA
)

// ParsePolicy returns the policy of a name: none, cores or numa.
func ParsePolicy(name string) (Policy, error) {
	for p := None; p <= NUMA; p++ {
		if p.String() == name {
			return p, nil
		}
	}
	return None, fmt.Errorf("pinning %s: not one of none, cores, numa", quote(name))
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
