package topo_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

// testdata/fuzz has the seeds.

func FuzzParseCPUSet(f *testing.F) {
	f.Fuzz(func(t *testing.T, list string) {
		set, err := topo.ParseCPUSet(list)
		if err != nil {
			if set != nil {
				t.Fatalf("%v beside %v", set, err)
			}
			return
		}
		if !slices.IsSorted(set) || len(slices.Compact(slices.Clone(set))) != len(set) {
			t.Fatalf("%v is not in rising order, each once", []int(set))
		}
		again, err := topo.ParseCPUSet(set.String())
		if err != nil || !again.Equal(set) {
			t.Fatalf("%v written and read: %v, %v", set, again, err)
		}
	})
}

func FuzzExpandHosts(f *testing.F) {
	f.Fuzz(func(t *testing.T, list string) {
		hosts, err := topo.ExpandHosts(list)
		if err != nil {
			if hosts != nil {
				t.Fatalf("%d names beside %v", len(hosts), err)
			}
			return
		}
		if len(hosts) > topo.MaxHosts {
			t.Fatalf("%d names", len(hosts))
		}
		for _, h := range hosts {
			if h == "" || len(h) > 255 || strings.ContainsAny(h, "[], \t\r\n") {
				t.Fatalf("name %q", h)
			}
		}
	})
}

func FuzzExpandCounts(f *testing.F) {
	f.Fuzz(func(t *testing.T, list string) {
		all, err := topo.ExpandCounts(list)
		if err != nil && all != nil || err == nil && (len(all) == 0 || len(all) > topo.MaxHosts || slices.Min(all) < 0) {
			t.Fatalf("%d numbers, %v", len(all), err)
		}
	})
}

// FuzzReadJob reads variables, one per line, and a file that a variable of PBS may name.
func FuzzReadJob(f *testing.F) {
	f.Fuzz(func(t *testing.T, env, file string) {
		d := newDisk(t)
		d.write("nodefile", file)
		j := topo.ReadJob(environment(env), d.files)
		switch {
		case j.Rank < -1, j.LocalRank < -1, j.Node < -1, j.Size < 0, j.LocalSize < 0, j.Nodes < 0,
			j.CPUsPerTask < 0, j.CPUsOnNode < 0, j.MemoryPerCPU < 0, j.MemoryPerNode < 0:
			t.Fatalf("below what is absent: %+v", j)
		case j.Launcher == "" && j.Rank >= 0, (j.Rank < 0) != (j.Size == 0):
			t.Fatalf("launcher, rank or size alone: %+v", j)
		case j.Size > 0 && j.Rank >= j.Size, j.LocalSize > 0 && j.LocalRank >= j.LocalSize, j.Nodes > 0 && j.Node >= j.Nodes,
			j.Size > 0 && j.LocalSize > j.Size, len(j.Hosts) > 0 && len(j.Hosts) != j.Nodes:
			t.Fatalf("contradictions: %+v", j)
		case len(j.Hosts) > topo.MaxHosts, len(j.TasksPerNode) > topo.MaxHosts:
			t.Fatalf("%d hosts, %d counts", len(j.Hosts), len(j.TasksPerNode))
		case j.String() == "":
			t.Fatal("nothing to say")
		}
		for _, p := range j.Problems {
			if p.Error() == "" || p.Err == nil || p.Variable == "" {
				t.Fatalf("problem %+v", p)
			}
		}
	})
}

// FuzzRead reads a machine some of whose files have arbitrary contents.
func FuzzRead(f *testing.F) {
	base := container(f)
	base.domain(0, "0-7,16-23", 96*gib, 90*gib)
	base.domain(1, "8-15,24-31", 96*gib, 80*gib)
	base.online("0-31", "0-1")
	base.cache(3, 3, "Unified", "11264K", "0-7,16-23")
	f.Fuzz(func(t *testing.T, status, groups, mounts, limit, list, meminfo, number string) {
		d := &disk{t, maps.Clone(base.files)}
		d.write("proc/self/status", status)
		d.write("proc/self/cgroup", groups)
		d.write("proc/self/mountinfo", mounts)
		d.write("sys/fs/cgroup/cpu.max", limit)
		d.write("sys/fs/cgroup/cpuset.cpus.effective", list)
		d.write("sys/devices/system/node/node1/cpulist", list)
		d.write(cpuFile(4, "topology/core_cpus_list"), list)
		d.write(cpuFile(4, "cache/index3/size"), number)
		d.write(cpuFile(4, "cache/index3/shared_cpu_list"), list)
		d.write(cpuFile(4, "cache/index3/level"), number)
		d.write(cpuFile(4, "topology/physical_package_id"), number)
		d.write(cpuFile(4, "cpu_capacity"), number)
		d.write("proc/meminfo", meminfo)
		d.write("proc/cpuinfo", meminfo)
		d.write("sys/devices/system/node/node0/meminfo", meminfo)
		for _, mask := range []topo.CPUSet{nil, set("3-8")} {
			if n, err := topo.Read(d.files, mask); err == nil {
				check(t, n)
			} else {
				t.Fatal(err) // the list of processors that are online is always there
			}
		}
	})
}
