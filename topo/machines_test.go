package topo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

// disk holds files in the kernel's formats.
type disk struct {
	t     testing.TB
	files fstest.MapFS
}

func newDisk(t testing.TB) *disk { return &disk{t, fstest.MapFS{}} }

func (d *disk) write(name, content string) {
	d.files[name] = &fstest.MapFile{Data: []byte(content + "\n"), Mode: 0o444}
}

// read describes the machine.
func (d *disk) read(mask topo.CPUSet) *topo.Node {
	d.t.Helper()
	n, err := topo.Read(d.files, mask)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// load reads a machine from testdata: files, each after a line with its name.
func load(t testing.TB, machine string) *disk {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "machines", machine+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk(t)
	header := regexp.MustCompile(`(?m)^-- (\S+) --\n`)
	text := string(b)
	at := header.FindAllStringSubmatchIndex(text, -1)
	if len(at) == 0 {
		t.Fatalf("%s has no files", machine)
	}
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		d.write(text[m[2]:m[3]], strings.TrimSuffix(text[m[1]:end], "\n"))
	}
	return d
}

// set parses a list of processors.
func set(list string) topo.CPUSet {
	s, err := topo.ParseCPUSet(list)
	if err != nil {
		panic(err)
	}
	return s
}

func cpuFile(cpu int, name string) string {
	return fmt.Sprintf("sys/devices/system/cpu/cpu%d/%s", cpu, name)
}

// core writes the topology files of the hardware threads of a core.
func (d *disk) core(pkg int, siblings string) {
	for _, cpu := range set(siblings) {
		d.write(cpuFile(cpu, "topology/physical_package_id"), strconv.Itoa(pkg))
		d.write(cpuFile(cpu, "topology/core_id"), strconv.Itoa(set(siblings)[0]))
		d.write(cpuFile(cpu, "topology/thread_siblings_list"), siblings)
		d.write(cpuFile(cpu, "topology/core_cpus_list"), siblings)
	}
}

// cache writes the files of a cache.
func (d *disk) cache(index, level int, kind, size, shared string) {
	for _, cpu := range set(shared) {
		at := cpuFile(cpu, fmt.Sprintf("cache/index%d/", index))
		d.write(at+"level", strconv.Itoa(level))
		d.write(at+"type", kind)
		d.write(at+"size", size)
		d.write(at+"shared_cpu_list", shared)
	}
}

const gib = 1 << 20 // in kibibytes

// domain writes the files of a NUMA domain.
func (d *disk) domain(id int, cpus string, kib, free int) {
	at := fmt.Sprintf("sys/devices/system/node/node%d/", id)
	d.write(at+"cpulist", cpus)
	d.write(at+"meminfo", fmt.Sprintf("Node %[1]d MemTotal:       %8[2]d kB\nNode %[1]d MemFree:        %8[3]d kB\nNode %[1]d MemUsed:        %8[4]d kB", id, kib, free, kib-free))
}

func (d *disk) memory(kib, free, available int) {
	d.write("proc/meminfo", fmt.Sprintf("MemTotal:       %8d kB\nMemFree:        %8d kB\nMemAvailable:   %8d kB\nHugePages_Total:       0", kib, free, available))
}

func (d *disk) online(cpus, domains string) {
	d.write("sys/devices/system/cpu/online", cpus)
	if domains != "" {
		d.write("sys/devices/system/node/online", domains)
	}
}

// laptop has four fast cores with two hardware threads each and eight slower cores, as Intel's
// twelfth generation.
func laptop(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-15", "0")
	d.write("proc/sys/kernel/hostname", "laptop")
	d.write("proc/cpuinfo", "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: 12th Gen  Intel(R) Core(TM) i7-1260P")
	for c := range 4 {
		pair := fmt.Sprintf("%d-%d", 2*c, 2*c+1)
		d.core(0, pair)
		d.cache(0, 1, "Data", "48K", pair)
		d.cache(1, 1, "Instruction", "32K", pair)
		d.cache(2, 2, "Unified", "1280K", pair)
	}
	for cpu := 8; cpu < 16; cpu++ {
		one := strconv.Itoa(cpu)
		d.core(0, one)
		d.cache(0, 1, "Data", "32K", one)
		d.cache(1, 1, "Instruction", "64K", one)
	}
	d.cache(2, 2, "Unified", "2048K", "8-11")
	d.cache(2, 2, "Unified", "2048K", "12-15")
	d.cache(3, 3, "Unified", "18432K", "0-15")
	d.write("sys/devices/cpu_core/cpus", "0-7")
	d.write("sys/devices/cpu_atom/cpus", "8-15")
	d.domain(0, "0-15", 15*gib, 4*gib)
	d.memory(15*gib, 4*gib, 9*gib)
	return d
}

// server has two sockets of eight cores, numbered as on Intel's servers: the first hardware threads
// of one socket, those of the other, then the second ones.
func server(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-31", "0-1")
	d.write("proc/sys/kernel/hostname", "n01")
	for c := range 16 {
		pair := fmt.Sprintf("%d,%d", c, c+16)
		d.core(c/8, pair)
		d.cache(0, 1, "Data", "32K", pair)
		d.cache(1, 1, "Instruction", "32K", pair)
		d.cache(2, 2, "Unified", "1024K", pair)
	}
	d.cache(3, 3, "Unified", "11264K", "0-7,16-23")
	d.cache(3, 3, "Unified", "11264K", "8-15,24-31")
	d.domain(0, "0-7,16-23", 96*gib, 90*gib)
	d.domain(1, "8-15,24-31", 96*gib, 80*gib)
	d.memory(192*gib, 170*gib, 180*gib)
	return d
}

// alternating has two sockets of four cores whose processors have alternating numbers.
func alternating(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-7", "0-1")
	for c := range 8 {
		d.core(c%2, strconv.Itoa(c))
	}
	d.domain(0, "0,2,4,6", 32*gib, 30*gib)
	d.domain(1, "1,3,5,7", 32*gib, 30*gib)
	d.memory(64*gib, 60*gib, 60*gib)
	return d
}

// quartered is a socket of an AMD EPYC of sixteen cores configured as four NUMA domains (NPS4),
// with a cache for every two cores.
func quartered(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-31", "0-3")
	for c := range 16 {
		d.core(0, fmt.Sprintf("%d,%d", c, c+16))
		if c%2 == 0 {
			d.cache(3, 3, "Unified", "16384K", fmt.Sprintf("%d-%d,%d-%d", c, c+1, c+16, c+17))
		}
	}
	for n := range 4 {
		d.domain(n, fmt.Sprintf("%d-%d,%d-%d", 4*n, 4*n+3, 4*n+16, 4*n+19), 64*gib, 60*gib)
	}
	d.memory(256*gib, 240*gib, 240*gib)
	return d
}

// expander has two sockets of four cores and a domain of memory alone (CXL). Its domains do not
// have consecutive numbers.
func expander(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-7", "0-1,4")
	for c := range 8 {
		d.core(c/4, strconv.Itoa(c))
	}
	d.domain(0, "0-3", 64*gib, 60*gib)
	d.domain(1, "4-7", 64*gib, 60*gib)
	d.domain(4, "", 256*gib, 250*gib)
	d.memory(384*gib, 370*gib, 375*gib)
	return d
}

// unplugged has four cores with two hardware threads each. Processors 2 and 6, a whole core, and 5
// are offline and have no topology.
func unplugged(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-1,3-4,7", "0")
	d.core(0, "0,4")
	d.core(0, "1")
	d.core(0, "3,7")
	for _, cpu := range []int{2, 5, 6} {
		d.write(cpuFile(cpu, "online"), "0")
	}
	d.cache(0, 1, "Data", "32K", "0,4")
	d.cache(0, 1, "Data", "32K", "1")
	d.cache(0, 1, "Data", "32K", "3,7")
	d.domain(0, "0-1,3-4,7", 16*gib, 8*gib)
	return d
}

// board is an arm64 machine with two fast and four slower cores, whose firmware reports no
// packages, caches or domains.
func board(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-5", "")
	d.write("proc/device-tree/model", "Pine64 RockPro64\x00")
	d.write("proc/cpuinfo", "processor\t: 0\nBogoMIPS\t: 48.00\nCPU implementer\t: 0x41")
	for cpu := range 6 {
		d.core(-1, strconv.Itoa(cpu))
		capacity := "485"
		if cpu > 3 {
			capacity = "1024"
		}
		d.write(cpuFile(cpu, "cpu_capacity"), capacity)
	}
	d.memory(4*gib, 2*gib, 3*gib)
	return d
}

// container is the view of a process that may use processors 4 to 7 of the server for the time of
// 2.5 processors, without files of domains and caches.
func container(t testing.TB) *disk {
	d := newDisk(t)
	d.online("0-31", "")
	for c := range 16 {
		d.core(c/8, fmt.Sprintf("%d,%d", c, c+16))
	}
	d.write("proc/self/status", "Name:\trank\nCpus_allowed:\tf0\nCpus_allowed_list:\t4-7\nMems_allowed_list:\t0")
	d.write("proc/self/cgroup", "0::/")
	d.write("proc/self/mountinfo", "29 23 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw")
	d.write("sys/fs/cgroup/cpu.max", "250000 100000")
	d.write("sys/fs/cgroup/memory.max", strconv.FormatInt(8<<30, 10))
	d.write("sys/fs/cgroup/pids.max", "1024")
	d.write("sys/fs/cgroup/cpuset.cpus.effective", "4-7")
	d.write("sys/fs/cgroup/cpuset.mems.effective", "0")
	d.memory(192*gib, 170*gib, 180*gib)
	return d
}
