//go:build unix

package spawn

import (
	"fmt"
	"os"
	"syscall"

	"github.com/cohort-hpc/cohort/topo"
)

// oomKills returns how many processes have been killed for lack of memory in this process's control group, where ranks are too;
// 0 on systems without control groups.
func oomKills() int64 { return topo.ReadOOMKills(os.DirFS("/")) }

// outOfMemory explains the end of a rank that SIGKILL ended, if the count of oomKills has risen: a rank, or a process that it
// has started, was killed because the limit of memory was reached. Each kill explains one end.
func (s *state) outOfMemory(e exit) string {
	if e.err != nil || !e.wait.Signaled() || e.wait.Signal() != syscall.SIGKILL || s.last == syscall.SIGKILL || oomKills() <= s.oomKills {
		return ""
	}
	s.oomKills++
	if limit := topo.ReadLimits(os.DirFS("/")).Memory; limit > 0 {
		return fmt.Sprintf(" because the memory limit of its control group, %d MiB, was reached,", limit>>20)
	}
	return " because the machine had no memory left,"
}
