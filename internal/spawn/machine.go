package spawn

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Machine is what this process may use of the machine's processors.
type Machine struct {
	// CPUs are the logical processors of the affinity mask, those of one
	// physical core next to each other, cores by NUMA node. It is never empty;
	// where there is no mask to read it counts from 0.
	CPUs CPUs
	// Cores are the same, one set for each physical core.
	Cores []CPUs
	// Nodes are the same, one set for each NUMA node.
	Nodes []CPUs
	// Quota is the processor time that the control groups allow, in processors;
	// 0 is no limit.
	Quota float64
	// Pinning reports whether processes can be bound to processors here.
	Pinning bool
}

// Usable returns how many ranks can run at the same time: the processors of the
// mask, fewer where a control group allows less time, at least 1.
func (m *Machine) Usable() int {
	n := len(m.CPUs)
	if m.Quota > 0 {
		n = min(n, int(math.Floor(m.Quota+0.01)))
	}
	return max(n, 1)
}

// ThisMachine reads the affinity mask, the topology and the limits that apply
// to this process.
func ThisMachine() *Machine {
	return readMachine("/", allowed())
}

// readMachine reads the topology of mask below root, which holds sys and proc.
// A nil mask means that none can be read or set.
func readMachine(root string, mask CPUs) *Machine {
	m := &Machine{Pinning: mask != nil}
	if mask == nil {
		for c := range runtime.NumCPU() {
			mask = append(mask, c)
		}
	}
	nodes := filepath.Join(root, "sys/devices/system/node")
	entries, _ := os.ReadDir(nodes) // without NUMA support there is no such folder: one node
	nodeOf := map[int]int{}
	for _, e := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "node"))
		if err != nil {
			continue
		}
		for _, c := range readCPUs(filepath.Join(nodes, e.Name(), "cpulist")) {
			nodeOf[c] = id
		}
	}
	type place struct{ node, core int }
	places := map[int]place{}
	for _, c := range mask {
		siblings := readCPUs(filepath.Join(root, "sys/devices/system/cpu/cpu"+strconv.Itoa(c), "topology/thread_siblings_list"))
		core := c
		if len(siblings) > 0 {
			core = siblings[0]
		}
		places[c] = place{nodeOf[c], core}
	}
	m.CPUs = slices.Clone(mask)
	slices.SortFunc(m.CPUs, func(a, b int) int {
		p, q := places[a], places[b]
		return cmp.Or(p.node-q.node, p.core-q.core, a-b)
	})
	for i, c := range m.CPUs {
		p := places[c]
		var before place
		if i > 0 {
			before = places[m.CPUs[i-1]]
		}
		if i == 0 || p.node != before.node {
			m.Nodes = append(m.Nodes, nil)
		}
		if i == 0 || p != before {
			m.Cores = append(m.Cores, nil)
		}
		m.Nodes[len(m.Nodes)-1] = append(m.Nodes[len(m.Nodes)-1], c)
		m.Cores[len(m.Cores)-1] = append(m.Cores[len(m.Cores)-1], c)
	}
	m.Quota = ReadLimits(root).CPU
	return m
}

// readCPUs reads a file in the kernel's list format; what cannot be read is empty.
func readCPUs(file string) CPUs {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	set, err := ParseCPUs(string(b))
	if err != nil {
		return nil
	}
	return set
}
