package topo_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

// cores formats cores as "0:0,4 0:1": the domain and the processors.
func cores(n *topo.Node) string {
	var all []string
	for _, c := range n.Cores {
		all = append(all, fmt.Sprintf("%d:%v", c.Domain, c.CPUs))
	}
	return strings.Join(all, " ")
}

// domains formats domains as "0[0-3] 4[]".
func domains(n *topo.Node) string {
	var all []string
	for _, d := range n.Domains {
		all = append(all, fmt.Sprintf("%d[%v]", d.ID, d.CPUs))
	}
	return strings.Join(all, " ")
}

// TestReadDescribesMachines describes many kinds of machines to processes that may use all or part
// of them.
func TestReadDescribesMachines(t *testing.T) {
	for _, c := range []struct {
		name    string
		machine func(testing.TB) *disk
		mask    string // "": that of the files

		cpus, cores, domains, packages string
	}{
		{
			"laptop", laptop, "0-15", "0-15",
			"0:0-1 0:2-3 0:4-5 0:6-7 0:8 0:9 0:10 0:11 0:12 0:13 0:14 0:15",
			"0[0-15]", "0[0-15]",
		}, {
			"laptop, slow cores and one thread", laptop, "7-9", "7-9",
			"0:7 0:8 0:9", "0[7-9]", "0[7-9]",
		}, {
			"server", server, "", "0-31",
			"0:0,16 0:1,17 0:2,18 0:3,19 0:4,20 0:5,21 0:6,22 0:7,23 1:8,24 1:9,25 1:10,26 1:11,27 1:12,28 1:13,29 1:14,30 1:15,31",
			"0[0-7,16-23] 1[8-15,24-31]", "0[0-7,16-23] 1[8-15,24-31]",
		}, {
			"server, across sockets", server, "6-9,22", "6-9,22",
			"0:6,22 0:7 1:8 1:9", "0[6-7,22] 1[8-9]", "0[6-7,22] 1[8-9]",
		}, {
			"server, a mask wider than it", server, "0-63", "0-31",
			"0:0,16 0:1,17 0:2,18 0:3,19 0:4,20 0:5,21 0:6,22 0:7,23 1:8,24 1:9,25 1:10,26 1:11,27 1:12,28 1:13,29 1:14,30 1:15,31",
			"0[0-7,16-23] 1[8-15,24-31]", "0[0-7,16-23] 1[8-15,24-31]",
		}, {
			"alternating numbers", alternating, "0-7", "0-7",
			"0:0 0:2 0:4 0:6 1:1 1:3 1:5 1:7", "0[0,2,4,6] 1[1,3,5,7]", "0[0,2,4,6] 1[1,3,5,7]",
		}, {
			"quartered", quartered, "0-7,16-17", "0-7,16-17",
			"0:0,16 0:1,17 0:2 0:3 1:4 1:5 1:6 1:7",
			// The other two have memory that may be used.
			"0[0-3,16-17] 1[4-7] 2[] 3[]", "0[0-7,16-17]",
		}, {
			"memory alone", expander, "0-7", "0-7",
			"0:0 0:1 0:2 0:3 1:4 1:5 1:6 1:7", "0[0-3] 1[4-7] 4[]", "0[0-3] 1[4-7]",
		}, {
			"switched off", unplugged, "0-7", "0-1,3-4,7",
			"0:0,4 0:1 0:3,7", "0[0-1,3-4,7]", "0[0-1,3-4,7]",
		}, {
			"arm64", board, "0-5", "0-5", "0:0 0:1 0:2 0:3 0:4 0:5", "0[0-5]", "",
		}, {
			"container", container, "", "4-7", "0:4 0:5 0:6 0:7", "0[4-7]", "0[4-7]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := c.machine(t).read(set(c.mask))
			var packages []string
			for _, p := range n.Packages {
				packages = append(packages, fmt.Sprintf("%d[%v]", p.ID, p.CPUs))
			}
			for _, v := range []struct{ what, got, want string }{
				{"processors", n.CPUs.String(), c.cpus},
				{"cores", cores(n), c.cores},
				{"domains", domains(n), c.domains},
				{"packages", strings.Join(packages, " "), c.packages},
			} {
				if v.got != v.want {
					t.Errorf("%s:\n got %s\nwant %s", v.what, v.got, v.want)
				}
			}
			if !n.Binding {
				t.Error("processors cannot be bound to")
			}
		})
	}
}

func TestReadKindsOfCores(t *testing.T) {
	n := laptop(t).read(nil)
	for _, c := range n.Cores {
		if want := c.CPUs[0] / 8; c.Class != want {
			t.Errorf("laptop: core %v is of class %d, want %d", c.CPUs, c.Class, want)
		}
	}
	// With only slower cores, none is slower than another.
	for _, c := range laptop(t).read(set("8-15")).Cores {
		if c.Class != 0 {
			t.Errorf("laptop's slow cores: core %v is of class %d", c.CPUs, c.Class)
		}
	}
	for _, c := range board(t).read(nil).Cores {
		want := 1
		if c.CPUs[0] > 3 {
			want = 0
		}
		if c.Class != want || c.Package != -1 {
			t.Errorf("arm64: core %v is of class %d in package %d, want %d in -1", c.CPUs, c.Class, c.Package, want)
		}
	}
	d := board(t)
	for cpu, capacity := range []string{"1000", "1010", "1024", "990", "960", "940"} {
		d.write(cpuFile(cpu, "cpu_capacity"), capacity)
	}
	for _, c := range d.read(nil).Cores {
		if c.Class != 0 {
			t.Errorf("cores that differ a little: %v is of class %d", c.CPUs, c.Class)
		}
	}
}

func TestReadFindsNames(t *testing.T) {
	if n := laptop(t).read(nil); n.Model != "12th Gen Intel(R) Core(TM) i7-1260P" || n.Host != "laptop" {
		t.Errorf("got %q on %q", n.Model, n.Host)
	}
	if n := board(t).read(nil); n.Model != "Pine64 RockPro64" {
		t.Errorf("got %q", n.Model)
	}
}

func TestReadFindsCaches(t *testing.T) {
	n := laptop(t).read(set("6-9"))
	want := []topo.Cache{
		{Level: 1, Type: "Data", Size: 48 << 10, CPUs: set("6-7")},
		{Level: 1, Type: "Data", Size: 32 << 10, CPUs: set("8")},
		{Level: 1, Type: "Data", Size: 32 << 10, CPUs: set("9")},
		{Level: 1, Type: "Instruction", Size: 32 << 10, CPUs: set("6-7")},
		{Level: 1, Type: "Instruction", Size: 64 << 10, CPUs: set("8")},
		{Level: 1, Type: "Instruction", Size: 64 << 10, CPUs: set("9")},
		{Level: 2, Type: "Unified", Size: 1280 << 10, CPUs: set("6-7")},
		{Level: 2, Type: "Unified", Size: 2 << 20, CPUs: set("8-9")},
		{Level: 3, Type: "Unified", Size: 18 << 20, CPUs: set("6-9")},
	}
	if !reflect.DeepEqual(n.Caches, want) {
		t.Errorf("got  %v\nwant %v", n.Caches, want)
	}
	if n := board(t).read(nil); n.Caches != nil {
		t.Errorf("arm64 has caches: %v", n.Caches)
	}
}

func TestReadFindsMemory(t *testing.T) {
	const g = 1 << 30
	n := expander(t).read(nil)
	if want := (topo.Memory{Total: 384 * g, Free: 370 * g, Available: 375 * g}); n.Memory != want {
		t.Errorf("machine: got %v, want %v", n.Memory, want)
	}
	want := []topo.Domain{
		{ID: 0, CPUs: set("0-3"), Memory: 64 * g, Free: 60 * g, Allowed: true},
		{ID: 1, CPUs: set("4-7"), Memory: 64 * g, Free: 60 * g, Allowed: true},
		{ID: 4, Memory: 256 * g, Free: 250 * g, Allowed: true},
	}
	if !reflect.DeepEqual(n.Domains, want) {
		t.Errorf("got  %+v\nwant %+v", n.Domains, want)
	}
	if got := n.MemoryLimit(); got != 384*g {
		t.Errorf("limit %d, want all", got)
	}

	// Restricted to the processors and memory of one socket: the other is left out.
	d := expander(t)
	d.write("proc/self/status", "Cpus_allowed_list:\t0-3\nMems_allowed_list:\t0,4")
	n = d.read(nil)
	want = []topo.Domain{
		{ID: 0, CPUs: set("0-3"), Memory: 64 * g, Free: 60 * g, Allowed: true},
		{ID: 4, Memory: 256 * g, Free: 250 * g, Allowed: true},
	}
	if !reflect.DeepEqual(n.Domains, want) {
		t.Errorf("one socket: got  %+v\nwant %+v", n.Domains, want)
	}
	if got := n.MemoryLimit(); got != 320*g {
		t.Errorf("one socket: limit %d GiB, want 320", got/g)
	}

	// Processors of a domain whose memory may not be used.
	d.write("proc/self/status", "Cpus_allowed_list:\t2-5\nMems_allowed_list:\t1")
	n = d.read(nil)
	if len(n.Domains) != 2 || n.Domains[0].Allowed || !n.Domains[1].Allowed || n.MemoryLimit() != 64*g {
		t.Errorf("memory of the other socket: got %+v, limit %d", n.Domains, n.MemoryLimit())
	}

	n = container(t).read(nil)
	if d := n.Domains[0]; d.Memory != 192*g || d.Free != 170*g || !d.Allowed {
		t.Errorf("no domains shown: got %+v", d)
	}
	if got := n.MemoryLimit(); got != 8*g {
		t.Errorf("container: limit %d, want 8 GiB", got)
	}
}

func TestDomainsOfSetsOfProcessors(t *testing.T) {
	n := expander(t).read(nil)
	for list, want := range map[string][]int{"": nil, "0": {0}, "3-4": {0, 1}, "5-7": {1}, "9": nil} {
		if got := n.DomainsOf(set(list)); !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", list, got, want)
		}
	}
}

// TestReadRealMachine reads the files of a real machine.
func TestReadRealMachine(t *testing.T) {
	n := load(t, "kvm-epyc").read(nil)
	const k = 1 << 10
	want := &topo.Node{
		Host: "n01", Model: "AMD EPYC", CPUs: set("0-1"), Online: set("0-1"), Permitted: set("0-1"),
		Packages: []topo.Package{{ID: 0, CPUs: set("0-1")}},
		Cores:    []topo.Core{{CPUs: set("0")}, {CPUs: set("1")}},
		Domains: []topo.Domain{{
			CPUs: set("0-1"), Allowed: true,
			Memory: 19491028 * k, Free: n.Domains[0].Free,
		}},
		Caches: []topo.Cache{
			{Level: 1, Type: "Data", Size: 48 * k, CPUs: set("0")},
			{Level: 1, Type: "Data", Size: 48 * k, CPUs: set("1")},
			{Level: 1, Type: "Instruction", Size: 32 * k, CPUs: set("0")},
			{Level: 1, Type: "Instruction", Size: 32 * k, CPUs: set("1")},
			{Level: 2, Type: "Unified", Size: 1024 * k, CPUs: set("0")},
			{Level: 2, Type: "Unified", Size: 1024 * k, CPUs: set("1")},
			{Level: 3, Type: "Unified", Size: 32768 * k, CPUs: set("0-1")},
		},
		Memory:  topo.Memory{Total: 24684092 * k, Free: n.Memory.Free, Available: n.Memory.Available},
		Binding: true,
	}
	if !reflect.DeepEqual(n, want) {
		t.Errorf("got  %+v\nwant %+v", n, want)
	}
	if n.Memory.Free <= 0 || n.Memory.Available <= 0 || n.Domains[0].Free <= 0 {
		t.Errorf("nothing is free: %+v, %+v", n.Memory, n.Domains[0])
	}
}

// TestReadToleratesMissingFiles removes each file of a machine, and fills it with garbage; the rest
// is still described.
func TestReadToleratesMissingFiles(t *testing.T) {
	d := container(t)
	d.domain(0, "0-7,16-23", 96*gib, 90*gib)
	d.domain(1, "8-15,24-31", 96*gib, 80*gib)
	d.cache(3, 3, "Unified", "11264K", "0-7,16-23")
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[name]
		// Processors are alike: take one that may be used and one that may not.
		cpu, ofCPU := strings.CutPrefix(name, "sys/devices/system/cpu/cpu")
		if ofCPU && !strings.HasPrefix(cpu, "4/") && !strings.HasPrefix(cpu, "20/") {
			continue
		}
		for _, nonsense := range []string{"", "-1", "99999999999999999999", "0-4294967295", "a: b\x00\xff", "0-3,", ":::\n - "} {
			d.write(name, nonsense)
			check(t, d.read(set("4-7")))
		}
		delete(d.files, name)
		check(t, d.read(set("4-7")))
		d.files[name] = file
	}
}

// check verifies the invariants of a description.
func check(t *testing.T, n *topo.Node) {
	t.Helper()
	var inCores, inDomains topo.CPUSet
	for _, c := range n.Cores {
		if len(c.CPUs) == 0 || len(inCores.Intersect(c.CPUs)) > 0 {
			t.Fatalf("core %v overlaps or is empty: %v", c.CPUs, cores(n))
		}
		inCores = inCores.Union(c.CPUs)
	}
	for _, d := range n.Domains {
		if len(inDomains.Intersect(d.CPUs)) > 0 {
			t.Fatalf("domain %d overlaps: %v", d.ID, domains(n))
		}
		inDomains = inDomains.Union(d.CPUs)
	}
	if len(n.CPUs) == 0 || !inCores.Equal(n.CPUs) || !inDomains.Equal(n.CPUs) {
		t.Fatalf("processors %v, cores %v, domains %v", n.CPUs, cores(n), domains(n))
	}
	for _, c := range n.Caches {
		if len(c.CPUs) == 0 || len(c.CPUs.Minus(n.CPUs)) > 0 || c.Size < 0 {
			t.Fatalf("cache %+v", c)
		}
	}
	for _, p := range n.Packages {
		if len(p.CPUs) == 0 || len(p.CPUs.Minus(n.CPUs)) > 0 || p.ID < 0 {
			t.Fatalf("package %+v", p)
		}
	}
	if n.Usable() < 1 || n.Usable() > len(n.CPUs) || n.MemoryLimit() < 0 {
		t.Fatalf("usable %d of %v, limit %d", n.Usable(), n.CPUs, n.MemoryLimit())
	}
	if n.String() == "" {
		t.Fatal("nothing to print")
	}
}

func TestReadWithoutFiles(t *testing.T) {
	if n, err := topo.Read(fstest.MapFS{}, nil); err == nil {
		t.Errorf("no files: got %v", n)
	}
	n, err := topo.Read(fstest.MapFS{}, set("3,5"))
	if err != nil {
		t.Fatal(err)
	}
	check(t, n)
	if cores(n) != "0:3 0:5" || domains(n) != "0[3,5]" {
		t.Errorf("a mask alone: cores %v, domains %v", cores(n), domains(n))
	}
}

// TestReadBrokenSiblings reads contradicting lists of a core's processors, as some firmware reports
// them.
func TestReadBrokenSiblings(t *testing.T) {
	d := newDisk(t)
	d.online("0-3", "0")
	d.core(0, "0-1")
	for cpu, list := range []string{"0-1", "1-2", "3", "0,3"} {
		d.write(cpuFile(cpu, "topology/core_cpus_list"), list)
		d.write(cpuFile(cpu, "topology/thread_siblings_list"), list)
	}
	d.domain(0, "0-3", gib, gib)
	n := d.read(nil)
	check(t, n)
	if got := cores(n); got != "0:0-1 0:2 0:3" {
		t.Errorf("got %s", got)
	}
}
