package spawn

import (
	"os"
	"strconv"
	"strings"
)

// liveGroups returns the process groups with at least one process that still runs.
// A zombie stays in its group until its parent waits for it. The parent of processes
// that a rank leaves is init, which may wait late or never. Without /proc, ok is false.
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
		f := procStat(name)
		if len(f) < 3 || f[0] == "Z" || f[0] == "X" {
			continue
		}
		if pgid, err := strconv.Atoi(f[2]); err == nil {
			groups[pgid] = true
		}
	}
	return groups, true
}

// procStat returns the fields of /proc/PID/stat from the state on, nil if the process has ended.
func procStat(pid string) []string {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	// pid (name) state ppid pgrp …; the name may hold anything (proc_pid_stat(5)).
	text := string(stat)
	return strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
}

func isStopped(pid int) bool {
	f := procStat(strconv.Itoa(pid))
	return len(f) > 0 && f[0] == "T"
}
