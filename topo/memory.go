package topo

import (
	"strconv"
	"strings"
)

// readDomains finds the NUMA domains. mems are those whose memory may be used, or nil if not known.
func (n *Node) readDomains(t tree, mems CPUSet) {
	n.Domains, n.within = nil, 0
	forbidden, allowed := false, int64(0)
	left := n.CPUs
	for _, id := range t.numbered(nodeFolder, "node") {
		folder := nodeFolder + "/node" + strconv.Itoa(id)
		info := t.text(folder + "/meminfo")
		d := Domain{
			ID: id, CPUs: t.cpus(folder + "/cpulist").Intersect(left),
			Memory: kibibytes(info, "MemTotal"), Free: kibibytes(info, "MemFree"),
		}
		d.Allowed = (mems == nil || mems.Contains(id)) && (d.Memory > 0 || info == "")
		if d.Allowed {
			allowed += d.Memory
		} else if d.Memory > 0 {
			forbidden = true
		}
		if len(d.CPUs) == 0 && (!d.Allowed || d.Memory == 0) {
			continue
		}
		left = left.Minus(d.CPUs)
		n.Domains = append(n.Domains, d)
	}
	if forbidden {
		n.within = allowed
	}
	if len(n.Domains) == 0 {
		n.Domains = []Domain{{CPUs: n.CPUs, Memory: n.Memory.Total, Free: n.Memory.Free, Allowed: true}}
		return
	}
	if len(left) > 0 { // in no domain's list; the kernel uses its first domain for them
		n.Domains[0].CPUs = n.Domains[0].CPUs.Union(left)
	}
}

func readMemory(t tree) Memory {
	info := t.text("proc/meminfo")
	return Memory{kibibytes(info, "MemTotal"), kibibytes(info, "MemFree"), kibibytes(info, "MemAvailable")}
}

// kibibytes returns the bytes in a line of a meminfo file, or 0: "MemTotal: 24684092 kB", with
// "Node 0 " in front in a domain's file.
func kibibytes(info, key string) int64 {
	for line := range strings.Lines(info) {
		before, after, _ := strings.Cut(line, ":")
		if before == key || strings.HasPrefix(before, "Node ") && strings.HasSuffix(before, " "+key) {
			number, unit, _ := strings.Cut(strings.TrimSpace(after), " ")
			kib, err := strconv.ParseInt(number, 10, 64)
			if err != nil || unit != "kB" || kib < 0 || kib > 1<<40 {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// readModel returns the name of the processors.
func readModel(t tree) string {
	info := t.head("proc/cpuinfo", 4<<10) // the kernel needs long to list all processors
	// The key depends on the architecture. Many have none; arm64 has a name only in the device
	// tree.
	for _, key := range []string{"model name", "cpu", "Model Name", "cpu model", "uarch"} {
		if v, ok := field(info, key); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return strings.TrimRight(t.text("proc/device-tree/model"), "\x00")
}
