package topo

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// ReadLimits returns the limits that control groups, of version 1 and 2, set for the process of
// proc/self in files; for this process, files is os.DirFS("/"). Each limit is the lowest on the
// path from the process's group to the root.
func ReadLimits(files fs.FS) Limits {
	t := tree{files}
	return readGroups(t).limits(t)
}

// group is the process's place in one hierarchy of control groups.
type group struct {
	controller string // "" for version 2, which has all of them
	mount, dir string // mount point of the hierarchy, and folder of the group
}

// groups are the process's groups in the hierarchies that matter.
type groups []group

// each calls visit with the folder of every group from the process's own up to the root.
func (gs groups) each(visit func(g group, dir string)) {
	for _, g := range gs {
		for dir := g.dir; ; dir = path.Dir(dir) {
			visit(g, dir)
			if dir == g.mount || len(dir) <= len(g.mount) {
				break
			}
		}
	}
}

func (gs groups) limits(t tree) Limits {
	var l Limits
	lower := func(dst *int64, v int64) {
		// Version 1 writes "no limit" as a number near 1<<63.
		if v > 0 && v < 1<<60 && (*dst == 0 || v < *dst) {
			*dst = v
		}
	}
	number := func(file string) int64 {
		v, _ := t.number(file) // version 2 writes "no limit" as "max": 0
		return v
	}
	var procs int64
	gs.each(func(g group, dir string) {
		var quota, period int64
		switch g.controller {
		case "":
			lower(&l.Memory, number(dir+"/memory.max"))
			lower(&procs, number(dir+"/pids.max"))
			if f := strings.Fields(t.text(dir + "/cpu.max")); len(f) == 2 {
				quota, _ = strconv.ParseInt(f[0], 10, 64)
				period, _ = strconv.ParseInt(f[1], 10, 64)
			}
		case "memory":
			lower(&l.Memory, number(dir+"/memory.limit_in_bytes"))
			// Includes groups above those that a container sees.
			for line := range strings.Lines(t.text(dir + "/memory.stat")) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "hierarchical_memory_limit" {
					v, _ := strconv.ParseInt(f[1], 10, 64)
					lower(&l.Memory, v)
				}
			}
		case "pids":
			lower(&procs, number(dir+"/pids.max"))
		case "cpu":
			quota = number(dir + "/cpu.cfs_quota_us") // -1: no limit
			period = number(dir + "/cpu.cfs_period_us")
		}
		if quota > 0 && period > 0 {
			if c := float64(quota) / float64(period); l.CPU == 0 || c < l.CPU {
				l.CPU = c
			}
		}
	})
	l.Procs = int(min(procs, math.MaxInt32))
	return l
}

// cpus returns the processors of the process's cpuset, nil if not known.
func (gs groups) cpus(t tree) CPUSet {
	return gs.set(t, "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
}

// mems returns the NUMA domains of the process's cpuset, nil if not known.
func (gs groups) mems(t tree) CPUSet {
	return gs.set(t, "cpuset.mems.effective", "cpuset.effective_mems", "cpuset.mems")
}

// set returns the intersection of the sets of all groups. v2 is the name in version 2 and v1 are
// those in version 1, where a parent group is narrower than its child for a moment only.
func (gs groups) set(t tree, v2 string, v1 ...string) CPUSet {
	var all CPUSet
	gs.each(func(g group, dir string) {
		var names []string
		switch g.controller {
		case "":
			names = []string{v2}
		case "cpuset":
			names = v1
		}
		for _, name := range names {
			if set := t.cpus(dir + "/" + name); set != nil {
				if all == nil {
					all = set
				}
				all = narrow(all, set)
				break
			}
		}
	})
	return all
}

// readGroups finds the hierarchies that limit processors, memory or processes.
func readGroups(t tree) groups {
	return findGroups(t.text("proc/self/cgroup"), t.text("proc/self/mountinfo"))
}

// findGroups parses a process's lists of groups (cgroups(7)) and mounts (proc_pid_mountinfo(5)).
// Folders are relative to the root.
func findGroups(self, mountinfo string) groups {
	var all groups
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3) // hierarchy, controllers, path
		if len(f) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(f[1], ",") {
			switch controller {
			case "", "cpu", "cpuset", "memory", "pids":
			default:
				continue
			}
			if mount, below, ok := findMount(mountinfo, controller, path.Clean("/"+f[2])); ok {
				all = append(all, group{controller, mount, path.Join(mount, below)})
			}
		}
	}
	return all
}

// findMount returns the mount point of the hierarchy of a version 1 controller, or of version 2 for
// "", and the path of a group below it. A mount may show only part of the hierarchy, as in a
// container. A mount that shows the group is preferred; in any other, its root stands for the
// group.
func findMount(mountinfo, controller, of string) (mount, below string, found bool) {
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if len(f) < 5 || len(g) < 3 {
			continue
		}
		if controller == "" && g[0] != "cgroup2" || controller != "" && (g[0] != "cgroup" || !slices.Contains(strings.Split(g[2], ","), controller)) {
			continue
		}
		top := path.Clean("/" + unescape(f[3]))
		if rel, ok := strings.CutPrefix(of, strings.TrimSuffix(top, "/")); ok && (rel == "" || rel[0] == '/') {
			return path.Clean("/" + unescape(f[4])), rel, true
		}
		if !found {
			mount, below, found = path.Clean("/"+unescape(f[4])), "", true
		}
	}
	return mount, below, found
}

// unescape decodes the characters that the kernel escapes in a path (show_mountinfo in fs/proc_namespace.c).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
