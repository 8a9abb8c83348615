package spawn

import "golang.org/x/sys/unix"

// allowed returns the affinity mask of this thread, nil if it cannot be read.
func allowed() CPUs {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil
	}
	var s CPUs
	for c := range len(set) * 64 {
		if set.IsSet(c) {
			s = append(s, c)
		}
	}
	return s
}

// setAffinity binds the calling thread, and with it every process it starts
// from now on, to cpus. A Go program reads its mask once when it starts, so this
// is the only time at which GOMAXPROCS follows it.
func setAffinity(cpus CPUs) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	return unix.SchedSetaffinity(0, &set)
}
