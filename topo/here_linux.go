package topo

import (
	"os"

	"golang.org/x/sys/unix"
)

// Here describes this node to this process. Its affinity mask is that of its main
// thread, so that a goroutine on a thread that is bound to fewer processors, as
// the workers of a pool are, gets the same answer as any other.
func Here() (*Node, error) {
	n, err := Read("/", affinity(os.Getpid()))
	if err != nil {
		return nil, err
	}
	if n.Host == "" {
		n.Host, _ = os.Hostname()
	}
	return n, nil
}

// affinity returns the affinity mask of a thread, 0 for the calling one; nil if
// it cannot be read so, as where the kernel is built for more processors than the
// fixed size of a mask here: /proc tells it then.
func affinity(tid int) CPUSet {
	var mask unix.CPUSet
	if unix.SchedGetaffinity(tid, &mask) != nil {
		return nil
	}
	var set CPUSet
	for cpu := range len(mask) * 64 {
		if mask.IsSet(cpu) {
			set = append(set, cpu)
		}
	}
	return set
}
