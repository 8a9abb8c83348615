package topo

import (
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Room returns how many bytes of memory are available, and the file that limits them: the tightest of the
// machine's memory and of the control groups of the process of proc/self in files, which is os.DirFS("/") for
// this process. It returns -1 if nothing is known. Exceeding the limit of a group ends the process.
func Room(files fs.FS) (free int64, from string) {
	t := tree{files}
	free = math.MaxInt64
	if m := readMemory(t); m.Available > 0 {
		free, from = m.Available, "MemAvailable in /proc/meminfo"
	}
	readGroups(t).each(func(g group, dir string) {
		limit, used, cache := dir+"/memory.max", "/memory.current", "inactive_file "
		if g.controller == "memory" { // version 1
			limit, used, cache = dir+"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file "
		}
		most, limited := t.number(limit) // "max" is no number
		now, known := t.number(dir + used)
		if !limited || !known {
			return
		}
		for line := range strings.Lines(t.text(dir + "/memory.stat")) {
			if rest, ok := strings.CutPrefix(line, cache); ok { // the kernel gives page cache back before it refuses
				reclaim, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
				now -= reclaim
			}
		}
		if most-now < free {
			free, from = most-now, limit
		}
	})
	if from == "" {
		return -1, ""
	}
	return max(free, 0), from
}
