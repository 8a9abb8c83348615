package topo

import (
	"os"

	"golang.org/x/sys/unix"
)

// atStart is the affinity mask that the process was started with: variables of
// packages are set before any goroutine can have bound the thread.
var atStart = affinity()

// Here describes this node to this process. Its affinity mask is the one that it
// was started with, whatever its threads are bound to by now, so that it is the
// same for all of them, the workers of a pool among them.
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

// affinity returns the affinity mask of the calling thread, nil if it cannot be
// read.
func affinity() CPUSet {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(0, &mask) != nil {
		// The kernel is built for more processors than this mask has room for.
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
