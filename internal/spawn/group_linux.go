package spawn

import (
	"os"
	"strconv"
	"strings"
)

// liveGroups returns the process groups that have a process which has not
// ended. A process that has ended stays in its group until its parent waits for
// it, and the parent of what a rank leaves behind is init, which may take its
// time or never do it. Without /proc, ok is false.
func liveGroups() (groups map[int]bool, ok bool) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	groups = map[int]bool{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil { // it has gone
			continue
		}
		// pid (name) state ppid pgrp …; the name may hold anything (proc_pid_stat(5)).
		_, rest, found := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
		f := strings.Fields(rest)
		if !found || len(f) < 3 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		if pgid, err := strconv.Atoi(f[2]); err == nil {
			groups[pgid] = true
		}
	}
	return groups, true
}
