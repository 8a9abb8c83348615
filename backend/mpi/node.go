package mpi

import (
	"os"
	"strconv"
	"strings"
)

// nodeRanks are the variables by which launchers tell how many ranks share a node.
var nodeRanks = []string{"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE"}

// oversubscribed reports whether the ranks of this node are more than its
// processors. A rank that is bound sees fewer of them, so that the system is asked,
// not the process's own affinity; what is not known is taken to be in order.
func oversubscribed(env func(string) (string, bool), online string) bool {
	cpus := countCPUs(online)
	for _, name := range nodeRanks {
		if v, ok := env(name); ok {
			n, err := strconv.Atoi(v)
			return err == nil && cpus > 0 && n > cpus
		}
	}
	return false
}

// onlineCPUs returns the system's list of processors, such as "0-7,9".
func onlineCPUs() string {
	b, _ := os.ReadFile("/sys/devices/system/cpu/online")
	return string(b)
}

// countCPUs returns how many processors a list names, 0 for what is no list.
func countCPUs(list string) (count int) {
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		low, high, isRange := strings.Cut(part, "-")
		if !isRange {
			high = low
		}
		a, err1 := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err1 != nil || err2 != nil || a < 0 || b < a {
			return 0
		}
		count += b - a + 1
	}
	return count
}
