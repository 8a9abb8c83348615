package topo

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
)

const (
	cpuFolder  = "sys/devices/system/cpu"
	nodeFolder = "sys/devices/system/node"
)

// errNoCPUs is why a node cannot be described at all.
var errNoCPUs = errors.New("topo: cannot find the processors this process may use")

// Read describes a machine from the files in its /proc and /sys, as a process with an affinity mask
// may use it. For this machine, files is os.DirFS("/"); a copy of another machine's files works as
// well. With a nil mask it uses that of the process of proc/self. It returns an error only if it
// finds no processor.
func Read(files fs.FS, mask CPUSet) (*Node, error) {
	t := tree{files}
	status := t.text("proc/self/status")
	groups := readGroups(t)

	online := t.cpus(cpuFolder + "/online")
	usable := mask
	if usable == nil {
		if list, ok := field(status, "Cpus_allowed_list"); ok {
			usable, _ = ParseCPUSet(list)
		}
	}
	if usable == nil {
		usable = online
	}
	if usable == nil {
		usable = NewCPUSet(t.numbered(cpuFolder, "cpu")...)
	}
	// A mask may hold processors that are not online. If none is left, the files are of another
	// machine than the mask, and the mask counts.
	usable = narrow(usable, online)
	cpuset := groups.cpus(t)
	usable = narrow(usable, cpuset)
	if len(usable) == 0 {
		return nil, fmt.Errorf("%w: no affinity mask, and no processors in %s", errNoCPUs, cpuFolder)
	}

	permitted := cpuset
	if online != nil {
		permitted = narrow(online, cpuset)
	}
	n := &Node{
		Host: t.text("proc/sys/kernel/hostname"), Model: readModel(t),
		CPUs: usable, Online: online, Permitted: permitted,
		Memory: readMemory(t), Limits: groups.limits(t), Binding: true,
	}
	mems := groups.mems(t)
	if list, ok := field(status, "Mems_allowed_list"); ok {
		if own, err := ParseCPUSet(list); err == nil {
			mems = narrow(own, mems)
		}
	}
	n.readDomains(t, mems)
	n.readCores(t)
	n.readCaches(t)
	n.orderCores()
	return n, nil
}

// narrow returns the intersection of two sets, or the first if the second is not known or the
// intersection is empty.
func narrow(set, to CPUSet) CPUSet {
	if both := set.Intersect(to); len(both) > 0 {
		return both
	}
	return set
}

func (n *Node) readCores(t tree) {
	n.Cores, n.Packages = nil, nil
	pkgOf := make(map[int]int)
	coreOf := make(map[int]bool) // processors whose core is known
	for _, cpu := range n.CPUs {
		folder := cpuFolder + "/cpu" + strconv.Itoa(cpu) + "/topology"
		if _, known := pkgOf[cpu]; !known {
			pkgOf[cpu] = -1
			if id, ok := t.number(folder + "/physical_package_id"); ok && id >= 0 && id <= maxCPU {
				pkgOf[cpu] = int(id)
				// The other processors of the package need not be read.
				for _, c := range firstList(t, cpu, folder+"/package_cpus_list", folder+"/core_siblings_list") {
					if _, known := pkgOf[c]; !known {
						pkgOf[c] = int(id)
					}
				}
			}
		}
		if coreOf[cpu] {
			continue
		}
		core := Core{Package: pkgOf[cpu], Domain: n.domainOf(cpu)}
		for _, c := range firstList(t, cpu, folder+"/core_cpus_list", folder+"/thread_siblings_list") {
			if n.CPUs.Contains(c) && !coreOf[c] {
				core.CPUs = append(core.CPUs, c)
				coreOf[c] = true
			}
		}
		n.Cores = append(n.Cores, core)
	}
	for _, cpu := range n.CPUs {
		id := pkgOf[cpu]
		if id < 0 {
			continue
		}
		i := slices.IndexFunc(n.Packages, func(p Package) bool { return p.ID == id })
		if i < 0 {
			i = len(n.Packages)
			n.Packages = append(n.Packages, Package{ID: id})
		}
		n.Packages[i].CPUs = append(n.Packages[i].CPUs, cpu)
	}
	slices.SortFunc(n.Packages, func(a, b Package) int { return a.ID - b.ID })
	n.classify(t)
}

// firstList returns the first of the files' sets that contains cpu itself, which broken firmware
// may leave out; otherwise only cpu.
func firstList(t tree, cpu int, files ...string) CPUSet {
	for _, f := range files {
		if set := t.cpus(f); set.Contains(cpu) {
			return set
		}
	}
	return CPUSet{cpu}
}

// kinds are the files in which Intel's hybrid processors list their cores, fastest first.
var kinds = []string{"sys/devices/cpu_core/cpus", "sys/devices/cpu_atom/cpus", "sys/devices/cpu_lowpower/cpus"}

// classify finds out which cores are of a slower kind.
func (n *Node) classify(t tree) {
	// speed is lower for slower kinds, and equal or nearly so within a kind.
	speed := make([]int64, len(n.Cores))
	for k, file := range kinds {
		set := t.cpus(file)
		for i, c := range n.Cores {
			if set.Contains(c.CPUs[0]) && speed[i] == 0 {
				speed[i] = int64(1000 >> k)
			}
		}
	}
	for i, c := range n.Cores {
		// If the kinds are not listed, the speed is relative to 1024 for the fastest.
		if speed[i] == 0 {
			speed[i], _ = t.number(cpuFolder + "/cpu" + strconv.Itoa(c.CPUs[0]) + "/cpu_capacity")
		}
	}
	if slices.Min(speed) <= 0 { // unless known for all, ignore it
		return
	}
	byspeed := slices.Sorted(slices.Values(speed))
	slices.Reverse(byspeed)
	class, top := make(map[int64]int), byspeed[0]
	at := 0
	for _, s := range byspeed {
		// Cores of one kind differ a little, because of their silicon; kinds differ by far more.
		if s < top-top/10 {
			top = s
			at++
		}
		class[s] = at
	}
	for i := range n.Cores {
		n.Cores[i].Class = class[speed[i]]
	}
}

// orderCores sorts the cores into the order in which they are assigned.
func (n *Node) orderCores() {
	last := make(map[int]int) // the lowest processor with the same last-level cache
	level := 0
	for _, c := range n.Caches { // ascending by level
		if c.Level >= level && c.Type != "Instruction" {
			level = c.Level
			for _, cpu := range c.CPUs {
				last[cpu] = c.CPUs[0]
			}
		}
	}
	slices.SortFunc(n.Cores, func(a, b Core) int {
		return cmp.Or(a.Domain-b.Domain, last[a.CPUs[0]]-last[b.CPUs[0]], a.CPUs[0]-b.CPUs[0])
	})
}

// domainOf returns the ID of a processor's domain.
func (n *Node) domainOf(cpu int) int {
	for _, d := range n.Domains {
		if d.CPUs.Contains(cpu) {
			return d.ID
		}
	}
	return n.Domains[0].ID
}
