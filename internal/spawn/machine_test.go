package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestParseCPUs(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"\n", ""}, {"0", "0"}, {"0-3\n", "0-3"}, {"5,1-2,4", "1-2,4-5"}, {"7,7,6-7", "6-7"},
	} {
		got, err := ParseCPUs(c.in)
		if err != nil || got.String() != c.want {
			t.Errorf("%q: got %v, %v, want %q", c.in, got, err, c.want)
		}
	}
	for _, bad := range []string{"a", "1-", "-1", "3-1", "1,,2", "0-99999999"} {
		if got, err := ParseCPUs(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func FuzzParseCPUs(f *testing.F) {
	f.Add("0-3,8")
	f.Fuzz(func(t *testing.T, s string) {
		set, err := ParseCPUs(s)
		if err != nil {
			return
		}
		again, err := ParseCPUs(set.String())
		if err != nil || !slices.Equal(set, again) {
			t.Errorf("%q: %v, then %v, %v", s, set, again, err)
		}
	})
}

// files writes a tree of small files.
func files(t *testing.T, tree map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range tree {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// twoNodes is a machine of 2 nodes with 2 cores of 2 threads, numbered as Linux
// does on most: first threads first, and node by node.
func twoNodes(t *testing.T) string {
	tree := map[string]string{
		"sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
		"sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
		"sys/devices/system/node/possible":      "0-1\n",
	}
	for c := range 8 {
		tree[fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c)] = fmt.Sprintf("%d,%d\n", c%4, c%4+4)
	}
	return files(t, tree)
}

func TestMachine_Place(t *testing.T) {
	root := twoNodes(t)
	all := CPUs{0, 1, 2, 3, 4, 5, 6, 7}
	for _, c := range []struct {
		mask CPUs
		bind Bind
		n    int
		want []string
	}{
		{all, BindCore, 1, []string{"0-7"}},
		{all, BindCore, 2, []string{"0-1,4-5", "2-3,6-7"}},
		{all, BindCore, 3, []string{"0,4", "1,5", "2-3,6-7"}},
		{all, BindCore, 4, []string{"0,4", "1,5", "2,6", "3,7"}},
		{all, BindCore, 8, []string{"0", "4", "1", "5", "2", "6", "3", "7"}},
		{all, BindCore, 10, []string{"0", "4", "1", "5", "2", "6", "3", "7", "0", "4"}},
		{all, BindNUMA, 1, []string{"0-7"}},
		{all, BindNUMA, 2, []string{"0-1,4-5", "2-3,6-7"}},
		{all, BindNUMA, 4, []string{"0-1,4-5", "0-1,4-5", "2-3,6-7", "2-3,6-7"}},
		{all, BindAuto, 4, []string{"0,4", "1,5", "2,6", "3,7"}},
		{all, BindAuto, 9, nil},
		{all, BindNone, 2, nil},
		{CPUs{1, 2, 6}, BindCore, 2, []string{"1", "2,6"}},
		{CPUs{1, 2, 6}, BindNUMA, 2, []string{"1", "2,6"}},
		{CPUs{1, 2, 6}, BindAuto, 4, nil},
	} {
		m := readMachine(root, c.mask)
		places, err := m.Place(c.bind, c.n)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, p := range places {
			got = append(got, p.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("mask %v, bind %q, %d ranks: got %q, want %q", c.mask, c.bind, c.n, got, c.want)
		}
	}
	none := readMachine(root, nil)
	if _, err := none.Place(BindCore, 1); err == nil {
		t.Error("binding where there is none is no error")
	}
	if places, err := none.Place(BindAuto, 1); err != nil || places != nil {
		t.Errorf("got %v, %v", places, err)
	}
}

func TestMachine_LimitsOfControlGroups(t *testing.T) {
	const (
		v2mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		v1mounts = "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n32 24 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		// A container that sees only its own group.
		ownmount = "33 24 0:26 /box/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	for _, c := range []struct {
		name string
		tree map[string]string
		want Limits
	}{
		{"none", nil, Limits{}},
		{"version 2, the lowest on the way counts", map[string]string{
			"proc/self/cgroup": "0::/user/job\n", "proc/self/mountinfo": v2mounts,
			"sys/fs/cgroup/user/cpu.max": "150000 100000\n", "sys/fs/cgroup/user/job/cpu.max": "max 100000\n",
			"sys/fs/cgroup/user/job/memory.max": "1048576\n", "sys/fs/cgroup/user/memory.max": "max\n", "sys/fs/cgroup/user/pids.max": "99\n",
		}, Limits{1.5, 1 << 20, 99}},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:memory:/a\n4:cpu,cpuacct:/a\n", "proc/self/mountinfo": v1mounts,
			"sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "25000\n",
			"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n",
		}, Limits{2, 4096, 0}},
		{"container", map[string]string{
			"proc/self/cgroup": "0::/box/abc/in\n", "proc/self/mountinfo": ownmount,
			"sys/fs/cgroup/cpu.max": "300000 100000\n", "sys/fs/cgroup/in/memory.max": "7\n",
		}, Limits{3, 7, 0}},
		{"container whose group lies elsewhere", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": ownmount, "sys/fs/cgroup/cpu.max": "100000 100000\n",
		}, Limits{1, 0, 0}},
		{"nonsense", map[string]string{
			"proc/self/cgroup": "x\n0::/a\n", "proc/self/mountinfo": "y - z\n" + v2mounts, "sys/fs/cgroup/a/cpu.max": "x y z\n",
		}, Limits{}},
	} {
		if got := ReadLimits(files(t, c.tree)); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestMachine_Usable(t *testing.T) {
	four := CPUs{0, 1, 2, 3}
	for _, c := range []struct {
		quota float64
		want  int
	}{{0, 4}, {8, 4}, {4, 4}, {2.5, 2}, {0.5, 1}} {
		m := Machine{CPUs: four, Quota: c.quota}
		if got := m.Usable(); got != c.want {
			t.Errorf("quota %v: got %d, want %d", c.quota, got, c.want)
		}
	}
	m := ThisMachine()
	if len(m.CPUs) == 0 || len(m.Cores) == 0 || len(m.Nodes) == 0 || m.Usable() < 1 {
		t.Errorf("this machine: %+v", m)
	}
}
