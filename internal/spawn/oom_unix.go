//go:build unix

package spawn

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/cohort-hpc/cohort/topo"
)

// oomKills returns how many processes have been killed for lack of memory in the control group of proc/self in files, which
// is os.DirFS("/") for this process. Ranks are in that group too. It is 0 on systems without control groups.
func oomKills(files fs.FS) (n int64) {
	groups, _ := fs.ReadFile(files, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3) // hierarchy, controllers, path
		folder, name := "sys/fs/cgroup", "memory.events"     // version 2: with the groups below
		if len(f) == 3 && f[1] == "memory" {
			folder, name = folder+"/memory", "memory.oom_control"
		} else if len(f) < 3 || f[1] != "" {
			continue
		}
		events, err := fs.ReadFile(files, path.Join(folder, f[2], name))
		if err != nil { // in a container the group may be the root
			events, _ = fs.ReadFile(files, path.Join(folder, name))
		}
		for line := range strings.Lines(string(events)) {
			kills, _ := strings.CutPrefix(strings.TrimSpace(line), "oom_kill ")
			v, _ := strconv.ParseInt(kills, 10, 64) // 0 for other lines
			n += v
		}
	}
	return n
}

// outOfMemory explains the end of a rank that SIGKILL ended, if the count of oomKills has risen: a rank, or a process that it
// has started, was killed because the limit of memory was reached. Each kill explains one end.
func (s *state) outOfMemory(e exit) string {
	if e.err != nil || !e.wait.Signaled() || e.wait.Signal() != syscall.SIGKILL || s.last == syscall.SIGKILL || oomKills(os.DirFS("/")) <= s.oomKills {
		return ""
	}
	s.oomKills++
	if limit := topo.ReadLimits(os.DirFS("/")).Memory; limit > 0 {
		return fmt.Sprintf(" because the memory limit of its control group, %d MiB, was reached,", limit>>20)
	}
	return " because the machine had no memory left,"
}
