package spawn

import (
	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// setAffinity binds the calling thread, and every process that it starts later, to
// cpus. A Go program reads its mask once, at start-up, to set GOMAXPROCS. So the
// mask must be set before the program starts.
func setAffinity(cpus topo.CPUSet) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}
