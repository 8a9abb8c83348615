package budget

import (
	"fmt"
	"os"

	"github.com/cohort-hpc/cohort/topo"
)

// Free returns how many more bytes this process may take at most, with the limit and what to do about it:
// the least of what the machine has, of what its control groups allow, and of what the scheduler
// gave the job on this node. Other processes of the job take their part of it. It is -1 if nothing is
// known.
func Free() (free int64, limit string) {
	free, limit = topo.Room(os.DirFS("/"))
	if free >= 0 {
		limit += "; ask for less, or give the job more memory"
	}
	// slurmd sets these variables where the job runs. A shell of salloc on a login node has the limit
	// of the job's nodes without them.
	if os.Getenv("SLURM_NODEID") == "" && os.Getenv("SLURMD_NODENAME") == "" {
		return free, limit
	}
	return tighter(free, limit, topo.ThisJob(), resident())
}

// tighter returns the limit of the job if that leaves less, given how much this process uses.
func tighter(free int64, limit string, j *topo.Job, used int64) (int64, string) {
	most, source := j.MemoryLimit()
	if most == 0 {
		return free, limit
	}
	left := max(most-used, 0)
	if free >= 0 && free <= left {
		return free, limit
	}
	return left, fmt.Sprintf("%s gives the job %d MiB on this node, of which this process uses %d MiB; ask for less, or ask %s for more memory",
		source, most>>20, used>>20, j.Scheduler)
}
