package topo_test

import (
	"testing"

	"github.com/cohort-hpc/cohort/topo"
)

// noLimit is how version 1 writes that there is no limit.
const noLimit = "9223372036854771712"

func TestControlGroupLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string // relative to the root
		want  topo.Limits
		cpus  string // of 0-7
	}{
		{"none", nil, topo.Limits{}, "0-7"},
		{
			"version 2, nested, tightest in the middle",
			map[string]string{
				"proc/self/cgroup":                            "0::/jobs/7/rank",
				"proc/self/mountinfo":                         "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate",
				"sys/fs/cgroup/jobs/cpu.max":                  "600000 100000",
				"sys/fs/cgroup/jobs/memory.max":               "17179869184",
				"sys/fs/cgroup/jobs/7/cpu.max":                "150000 50000",
				"sys/fs/cgroup/jobs/7/memory.max":             "8589934592",
				"sys/fs/cgroup/jobs/7/pids.max":               "300",
				"sys/fs/cgroup/jobs/7/rank/cpu.max":           "max 100000",
				"sys/fs/cgroup/jobs/7/rank/memory.max":        "max",
				"sys/fs/cgroup/jobs/7/rank/pids.max":          "max",
				"sys/fs/cgroup/jobs/7/rank/cpuset.cpus":       "",
				"sys/fs/cgroup/jobs/cpuset.cpus.effective":    "2-7",
				"sys/fs/cgroup/jobs/7/cpuset.cpus.effective":  "2-5",
				"sys/fs/cgroup/jobs/70/memory.max":            "1",
				"sys/fs/cgroup/jobs/7/rank/below/memory.max":  "1",
				"sys/fs/cgroup/jobs/7/another/pids.max":       "1",
				"sys/fs/cgroup/jobs/7/rank/memory.swap.max":   "1",
				"sys/fs/cgroup/jobs/7/rank/cpu.weight":        "1",
				"sys/fs/cgroup/jobs/7/rank/hugetlb.2MB.max":   "1",
				"sys/fs/cgroup/jobs/7/rank/memory.high":       "1",
				"sys/fs/cgroup/jobs/7/rank/cpu.max.burst":     "1",
				"sys/fs/cgroup/jobs/7/rank/cgroup.type":       "domain",
				"sys/fs/cgroup/jobs/7/rank/cpuset.mems.ghost": "1",
			},
			topo.Limits{CPU: 3, Memory: 8 << 30, Procs: 300}, "2-5",
		}, {
			"version 2 in a container that shows its own group as the top",
			map[string]string{
				"proc/self/cgroup":                    "0::/",
				"proc/self/mountinfo":                 "29 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw",
				"sys/fs/cgroup/cpu.max":               "50000 100000",
				"sys/fs/cgroup/memory.max":            "1073741824",
				"sys/fs/cgroup/cpuset.cpus.effective": "6",
			},
			topo.Limits{CPU: 0.5, Memory: 1 << 30}, "6",
		}, {
			"version 2, a process outside what its namespace shows",
			map[string]string{
				"proc/self/cgroup":              "0::/../../other",
				"proc/self/mountinfo":           "29 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
				"sys/fs/cgroup/other/cpu.max":   "200000 100000",
				"sys/fs/cgroup/memory.max":      "1073741824",
				"sys/fs/cgroup/pids.max":        "max",
				"sys/fs/cgroup/nowhere/cpu.max": "1 1",
			},
			topo.Limits{CPU: 2, Memory: 1 << 30}, "0-7",
		}, {
			"version 1, controllers together and in folders of their own",
			map[string]string{
				"proc/self/cgroup": "12:pids:/slurm/job_9\n5:memory:/slurm/uid_1/job_9/step_0\n4:cpuset:/slurm/uid_1/job_9\n3:cpu,cpuacct:/slurm\n1:name=systemd:/x",
				"proc/self/mountinfo": "30 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
					"31 25 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
					"32 25 0:29 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n" +
					"33 25 0:30 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us":                            "-1",
				"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us":                           "100000",
				"sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us":                      "450000",
				"sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us":                     "100000",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":                            noLimit,
				"sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.limit_in_bytes":          "34359738368",
				"sys/fs/cgroup/memory/slurm/uid_1/job_9/step_0/memory.limit_in_bytes":   noLimit,
				"sys/fs/cgroup/cpuset/cpuset.cpus":                                      "0-63",
				"sys/fs/cgroup/cpuset/slurm/uid_1/job_9/cpuset.cpus":                    "4-6",
				"sys/fs/cgroup/pids/slurm/job_9/pids.max":                               "max",
				"sys/fs/cgroup/pids/slurm/pids.max":                                     "4096",
				"sys/fs/cgroup/cpuset/slurm/uid_1/job_9/cpuset.effective_mems":          "0",
				"sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.memsw.limit_in_bytes":    "1",
				"sys/fs/cgroup/memory/slurm/uid_1/job_9/memory.kmem.limit_in_bytes":     "1",
				"sys/fs/cgroup/cpu,cpuacct/slurm/uid_1/cpu.cfs_quota_us":                "1",
				"sys/fs/cgroup/cpu,cpuacct/slurm/uid_1/cpu.cfs_period_us":               "100000",
				"sys/fs/cgroup/memory/slurm/uid_1/job_9/step_0/memory.soft_limit_bytes": "1",
			},
			topo.Limits{CPU: 4.5, Memory: 32 << 30, Procs: 4096}, "4-6",
		}, {
			"version 1 in a container: only memory.stat reports the limits above",
			map[string]string{
				"proc/self/cgroup":                           "5:memory:/docker/4fa6",
				"proc/self/mountinfo":                        "31 25 0:28 /docker/4fa6 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": noLimit,
				"sys/fs/cgroup/memory/memory.stat":           "cache 0\nhierarchical_memory_limit 2147483648\nhierarchical_memsw_limit 1",
			},
			topo.Limits{Memory: 2 << 30}, "0-7",
		}, {
			"both versions, mounted with a space in the name",
			map[string]string{
				"proc/self/cgroup":         "5:cpu:/a b\n0::/c",
				"proc/self/mountinfo":      "31 25 0:28 / /groups\\040one rw - cgroup cgroup rw,cpu\n32 25 0:29 / /two rw - cgroup2 none rw",
				"groups one/a b/cpu.max":   "1 1",
				"two/c/pids.max":           "77",
				"two/c/memory.max":         "0", // would mean no limit if it were a count
				"two/memory.max":           "4096",
				"groups one/memory.max":    "1",
				"groups one/pids.max":      "1",
				"two/c/cpuset.cpus":        "1",
				"two/cpu.max":              "100000",
				"two/c/cpu.max":            "-5 100000",
				"groups one/cpu.cfs_quota": "1",
			},
			topo.Limits{Memory: 4096, Procs: 77}, "0-7",
		}, {
			"the mount that shows the group, not the first one",
			map[string]string{
				"proc/self/cgroup":    "0::/pod/x",
				"proc/self/mountinfo": "31 25 0:28 /pod/y /other rw - cgroup2 none rw\n32 25 0:28 /pod/x /own rw - cgroup2 none rw",
				"other/pids.max":      "1",
				"own/pids.max":        "99",
			},
			topo.Limits{Procs: 99}, "0-7",
		}, {
			"the mount that shows the group, not one whose name begins alike",
			map[string]string{
				"proc/self/cgroup":    "0::/pod/xy",
				"proc/self/mountinfo": "31 25 0:28 /pod/x /other rw - cgroup2 none rw\n32 25 0:28 /pod/xy /own rw - cgroup2 none rw",
				"other/pids.max":      "1",
				"own/pids.max":        "99",
			},
			topo.Limits{Procs: 99}, "0-7",
		}, {
			"a cpuset of another machine is not believed",
			map[string]string{
				"proc/self/cgroup":                    "0::/",
				"proc/self/mountinfo":                 "29 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw",
				"sys/fs/cgroup/cpuset.cpus.effective": "64-127",
			},
			topo.Limits{}, "0-7",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk(t)
			for name, content := range c.files {
				d.write(name, content)
			}
			if got := topo.ReadLimits(d.files); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			n := d.read(set("0-7"))
			if n.Limits != c.want {
				t.Errorf("of the node: got %+v, want %+v", n.Limits, c.want)
			}
			if n.CPUs.String() != c.cpus {
				t.Errorf("processors %v, want %s", n.CPUs, c.cpus)
			}
			// The cpuset does not narrow the mask.
			d.write("sys/devices/system/cpu/online", "0-7")
			if n := d.read(set("5-7")); n.Permitted.String() != c.cpus {
				t.Errorf("permitted %v, want %s", n.Permitted, c.cpus)
			}
		})
	}
}

func TestUsableRespectsQuota(t *testing.T) {
	for _, c := range []struct {
		cpus  string
		quota float64
		want  int
	}{
		{"0-7", 0, 8},
		{"0-7", 2.5, 2},
		{"0-7", 3.999, 4},
		{"0-7", 0.25, 1},
		{"0-7", 16, 8},
		{"0-7", 1e300, 8},
		{"5", 0, 1},
	} {
		n := &topo.Node{CPUs: set(c.cpus), Limits: topo.Limits{CPU: c.quota}}
		if got := n.Usable(); got != c.want {
			t.Errorf("%s with a quota of %g: got %d, want %d", c.cpus, c.quota, got, c.want)
		}
	}
}
