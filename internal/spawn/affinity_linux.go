package spawn

import (
	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/topo"
)

// setAffinity binds the calling thread, and with it every process it starts
// from now on, to cpus. A Go program reads its mask once when it starts, so this
// is the only time at which GOMAXPROCS follows it.
func setAffinity(cpus topo.CPUSet) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}
