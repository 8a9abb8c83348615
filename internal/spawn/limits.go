package spawn

import (
	"bufio"
	"bytes"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits are what the control groups of this process allow; 0 is no limit.
type Limits struct {
	CPU    float64 // processors' worth of time
	Memory int64   // bytes
	Procs  int     // processes and threads
}

// ReadLimits reads the limits of both versions of control groups from proc and
// sys below root ("/" outside tests): the lowest one on the way from this
// process's group to the top.
func ReadLimits(root string) Limits {
	var l Limits
	for _, g := range readGroups(root) {
		for dir := g.dir; ; dir = filepath.Dir(dir) {
			g.read(dir, &l)
			if dir == g.mount || len(dir) <= len(g.mount) {
				break
			}
		}
	}
	return l
}

// group is this process's place in one hierarchy of control groups.
type group struct {
	v2         bool
	mount, dir string // where the hierarchy is mounted, and the group's folder below it
}

// read lowers l to the limits in one group's folder.
func (g group) read(dir string, l *Limits) {
	lower := func(dst *int64, name string) {
		// v1 writes no limit as a number near 1<<63, v2 as "max", which is no number.
		if v, ok := readNumber(filepath.Join(dir, name)); ok && v > 0 && v < 1<<60 && (*dst == 0 || v < *dst) {
			*dst = v
		}
	}
	procs := int64(l.Procs)
	lower(&procs, "pids.max")
	l.Procs = int(procs)
	var quota, period int64
	if g.v2 {
		lower(&l.Memory, "memory.max")
		b, _ := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if f := strings.Fields(string(b)); len(f) == 2 {
			quota, _ = strconv.ParseInt(f[0], 10, 64) // "max" leaves 0: no limit
			period, _ = strconv.ParseInt(f[1], 10, 64)
		}
	} else {
		lower(&l.Memory, "memory.limit_in_bytes")
		quota, _ = readNumber(filepath.Join(dir, "cpu.cfs_quota_us")) // -1: no limit
		period, _ = readNumber(filepath.Join(dir, "cpu.cfs_period_us"))
	}
	if quota > 0 && period > 0 {
		if c := float64(quota) / float64(period); l.CPU == 0 || c < l.CPU {
			l.CPU = c
		}
	}
}

// readGroups finds the hierarchies that limit processors, memory or processes.
func readGroups(root string) []group {
	self, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	var groups []group
	for line := range strings.SplitSeq(strings.TrimSpace(string(self)), "\n") {
		f := strings.SplitN(line, ":", 3) // hierarchy, controllers, path
		if len(f) != 3 {
			continue
		}
		for _, controller := range strings.Split(f[1], ",") {
			switch controller {
			case "", "cpu", "memory", "pids":
			default:
				continue
			}
			if mount, top, ok := findMount(mounts, controller); ok {
				// In a container the group's path may lie outside what is mounted.
				rel, err := filepath.Rel(top, f[2])
				if err != nil || strings.HasPrefix(rel, "..") {
					rel = "."
				}
				mount = filepath.Join(root, mount)
				groups = append(groups, group{controller == "", mount, filepath.Join(mount, rel)})
			}
		}
	}
	return groups
}

// findMount returns where the hierarchy of a version 1 controller, or of version
// 2 for "", is mounted, and which of its groups the mount shows (proc(5)).
func findMount(mountinfo []byte, controller string) (mount, top string, ok bool) {
	s := bufio.NewScanner(bytes.NewReader(mountinfo))
	for s.Scan() {
		before, after, found := strings.Cut(s.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !found || len(f) < 5 || len(g) < 3 {
			continue
		}
		switch {
		case controller == "" && g[0] == "cgroup2":
			return f[4], path.Clean(f[3]), true
		case controller != "" && g[0] == "cgroup":
			for _, o := range strings.Split(g[2], ",") {
				if o == controller {
					return f[4], path.Clean(f[3]), true
				}
			}
		}
	}
	return "", "", false
}

func readNumber(file string) (int64, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil
}
