package topo

import (
	"os"

	"golang.org/x/sys/unix"
)

// atStart is the affinity mask of the process at its start. Package variables are initialized
// before any goroutine can bind a thread.
var atStart = affinity()

// Here describes this node as this process may use it. It uses the affinity mask that the process
// started with, even if threads have been bound since, so that all threads, including the workers
// of a pool, get the same result.
func Here() (*Node, error) {
	n, err := Read(os.DirFS("/"), atStart)
	if err != nil {
		return nil, err
	}
	if n.Host == "" {
		n.Host, _ = os.Hostname()
	}
	return n, nil
}

// affinity returns the affinity mask of the calling thread, or nil if it cannot be read.
func affinity() CPUSet {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(0, &mask) != nil {
		// The kernel supports more processors than this mask holds.
		list, _ := field(tree{os.DirFS("/")}.text("proc/thread-self/status"), "Cpus_allowed_list")
		set, _ := ParseCPUSet(list)
		return set
	}
	var set CPUSet
	for cpu := range len(mask) * 64 {
		if mask.IsSet(cpu) {
			set = append(set, cpu)
		}
	}
	return set
}
