package shmem

import "golang.org/x/sys/unix"

// CPUs returns the processor cores this process may run on, as a bit set of the
// first 1024.
func CPUs() (set [16]uint64, err error) {
	var s unix.CPUSet
	if err := unix.SchedGetaffinity(0, &s); err != nil {
		return set, err
	}
	for i := range 1024 {
		if s.IsSet(i) {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set, nil
}
