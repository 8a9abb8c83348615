//go:build !linux

package topo

import (
	"os"
	"runtime"
)

// Here describes this node as this process may use it. On this system that is its processors only,
// each counted as a core, in one domain.
func Here() (*Node, error) {
	n := &Node{}
	n.Host, _ = os.Hostname()
	for cpu := range runtime.NumCPU() {
		n.CPUs = append(n.CPUs, cpu)
		n.Cores = append(n.Cores, Core{CPUs: CPUSet{cpu}, Package: -1})
	}
	n.Domains = []Domain{{CPUs: n.CPUs, Allowed: true}}
	return n, nil
}
