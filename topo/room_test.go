package topo_test

import (
	"os"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

func TestRoomIsTheTightestLimit(t *testing.T) {
	const mib = 1 << 20
	machine := fstest.MapFS{
		"proc/meminfo":        {Data: []byte("MemTotal: 4096 kB\nMemAvailable: 3072 kB\n")},
		"proc/self/cgroup":    {Data: []byte("0::/job/step\n")},
		"proc/self/mountinfo": {Data: []byte("1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")},

		"sys/fs/cgroup/job/step/memory.max":     {Data: []byte("max\n")},
		"sys/fs/cgroup/job/step/memory.current": {Data: []byte("9999\n")},
		"sys/fs/cgroup/job/memory.current":      {Data: []byte("2097152\n")},
		"sys/fs/cgroup/job/memory.stat":         {Data: []byte("anon 1\ninactive_file 1048576\n")},
	}
	old := fstest.MapFS{
		"proc/self/cgroup":    {Data: []byte("3:cpu,memory:/job\n")},
		"proc/self/mountinfo": {Data: []byte("1 0 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")},

		"sys/fs/cgroup/memory/job/memory.limit_in_bytes": {Data: []byte("5242880\n")},
		"sys/fs/cgroup/memory/job/memory.usage_in_bytes": {Data: []byte("3145728\n")},
		"sys/fs/cgroup/memory/job/memory.stat":           {Data: []byte("inactive_file 7\ntotal_inactive_file 2097152\n")},
	}
	for _, c := range []struct {
		max  string // of the group above
		want int64
		from string
	}{
		{"max", 3 * mib, "MemAvailable in /proc/meminfo"},
		{"8388608", 3 * mib, "MemAvailable in /proc/meminfo"}, // 7 MiB are left of it
		{"3145728", 2 * mib, "/sys/fs/cgroup/job/memory.max"}, // 3 MiB, 2 used, 1 of them cache
		{"4096", 0, "/sys/fs/cgroup/job/memory.max"},
	} {
		machine["sys/fs/cgroup/job/memory.max"] = &fstest.MapFile{Data: []byte(c.max + "\n")}
		if free, from := topo.Room(machine); free != c.want || from != c.from {
			t.Errorf("with %s: %d bytes by %q, want %d by %q", c.max, free, from, c.want, c.from)
		}
	}
	if free, from := topo.Room(old); free != 4*mib || from != "/sys/fs/cgroup/memory/job/memory.limit_in_bytes" {
		t.Errorf("version 1: %d bytes by %q, want 4 MiB", free, from)
	}
	if free, from := topo.Room(fstest.MapFS{}); free != -1 || from != "" {
		t.Errorf("without files: %d bytes by %q, want -1", free, from)
	}
	if free, from := topo.Room(os.DirFS("/")); runtime.GOOS == "linux" && (free <= 0 || from == "") {
		t.Errorf("here: %d bytes by %q", free, from)
	}
}
