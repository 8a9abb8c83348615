package shmem

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Room returns how many bytes of memory are available, and the file that limits them: the tightest
// of the machine's memory and the control groups above this process. It returns -1 if nothing is known.
// Exceeding the limit of a group ends the process, so it must be known before memory is touched.
func Room() (free int64, from string) {
	free = math.MaxInt64
	if kib, err := number("/proc/meminfo", "MemAvailable:"); err == nil {
		free, from = kib<<10, "MemAvailable in /proc/meminfo"
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		// hierarchy:controllers:path; version 2 has no controllers
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		root, limit, used, cache := "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
		if f[1] != "" {
			if !slices.Contains(strings.Split(f[1], ","), "memory") {
				continue
			}
			root, limit, used, cache = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
		}
		for dir := filepath.Join(root, f[2]); strings.HasPrefix(dir, root); dir = filepath.Dir(dir) {
			most, err1 := number(filepath.Join(dir, limit), "")
			now, err2 := number(filepath.Join(dir, used), "")
			if err1 != nil || err2 != nil {
				continue // no limit here, "max" included
			}
			if reclaim, err := number(filepath.Join(dir, "memory.stat"), cache); err == nil {
				now -= reclaim // the kernel gives page cache back before it refuses
			}
			if most-now < free {
				free, from = most-now, filepath.Join(dir, limit)
			}
		}
	}
	if from == "" {
		return -1, ""
	}
	return max(free, 0), from
}

// number returns the number after a word in a file, or at its beginning if the word is empty.
func number(file, word string) (int64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(b))
	words = words[slices.Index(words, word)+1:] // without the word, all: the first is no number, or it is empty
	if len(words) == 0 {
		return 0, fmt.Errorf("%s: no %s", file, word)
	}
	return strconv.ParseInt(words[0], 10, 64)
}
