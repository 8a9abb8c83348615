package spawn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cohort-hpc/cohort/topo"
)

// machine has domains of cores with two hardware threads each, numbered as Linux
// does on most: first threads first, and domain by domain. One more domain is memory
// alone.
func machine(t *testing.T, domains, cores int, mask string) *topo.Node {
	t.Helper()
	files := fstest.MapFS{}
	write := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text + "\n")} }
	all := domains * cores
	write("sys/devices/system/cpu/online", fmt.Sprintf("0-%d", 2*all-1))
	write("proc/self/status", "Cpus_allowed_list:\t"+mask)
	for d := range domains {
		write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", d),
			fmt.Sprintf("%d-%d,%d-%d", d*cores, (d+1)*cores-1, all+d*cores, all+(d+1)*cores-1))
	}
	write(fmt.Sprintf("sys/devices/system/node/node%d/cpulist", domains), "")
	write(fmt.Sprintf("sys/devices/system/node/node%d/meminfo", domains), fmt.Sprintf("Node %d MemTotal: 1048576 kB", domains))
	for c := range 2 * all {
		write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", c), fmt.Sprintf("%d,%d", c%all, c%all+all))
	}
	n, err := topo.Read(files, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestPlaceSharesOutProcessors(t *testing.T) {
	for _, c := range []struct {
		domains, cores int
		mask           string
		bind           Bind
		n              int
		want           string
	}{
		{2, 2, "0-7", BindCore, 1, "0-7"},
		{2, 2, "0-7", BindCore, 2, "0-1,4-5 | 2-3,6-7"},
		{2, 2, "0-7", BindCore, 3, "0,4 | 1,5 | 2-3,6-7"},
		{2, 2, "0-7", BindCore, 4, "0,4 | 1,5 | 2,6 | 3,7"},
		{2, 2, "0-7", BindCore, 8, "0 | 4 | 1 | 5 | 2 | 6 | 3 | 7"},
		// More than processors: neighbors take turns.
		{2, 2, "0-7", BindCore, 16, "0 | 0 | 4 | 4 | 1 | 1 | 5 | 5 | 2 | 2 | 6 | 6 | 3 | 3 | 7 | 7"},
		{2, 2, "0-7", BindNUMA, 1, "0-7"},
		{2, 2, "0-7", BindNUMA, 2, "0-1,4-5 | 2-3,6-7"},
		{2, 2, "0-7", BindNUMA, 4, "0-1,4-5 | 0-1,4-5 | 2-3,6-7 | 2-3,6-7"},
		{4, 1, "0-7", BindNUMA, 3, "0,4 | 1,5 | 2-3,6-7"},
		{2, 2, "0-7", BindAuto, 4, "0,4 | 1,5 | 2,6 | 3,7"},
		{2, 2, "0-7", BindAuto, 9, ""},
		{2, 2, "0-7", BindNone, 2, ""},
		{2, 2, "1-2,6", BindCore, 2, "1 | 2,6"},
		{2, 2, "1-2,6", BindNUMA, 2, "1 | 2,6"},
		{2, 2, "1-2,6", BindAuto, 4, ""},
		// A rank has at least its even share of the cores, in one domain if that can be.
		{2, 4, "0-15", BindCore, 3, "0-1,8-9 | 2-3,10-11 | 4-7,12-15"},
		{2, 3, "0-11", BindCore, 3, "0-1,6-7 | 2-3,8-9 | 4-5,10-11"},
		{3, 1, "0-5", BindCore, 2, "0,3 | 1-2,4-5"},
		{4, 8, "0-63", BindCore, 3, "0-9,32-41 | 10-20,42-52 | 21-31,53-63"},
		{2, 3, "0-11", BindCore, 4, "0,6 | 1-2,7-8 | 3,9 | 4-5,10-11"},
	} {
		node := machine(t, c.domains, c.cores, c.mask)
		places, err := Place(node, c.bind, c.n)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, p := range places {
			got = append(got, p.String())
		}
		if text := strings.Join(got, " | "); text != c.want {
			t.Errorf("%v: bind %q, %d ranks: got %q, want %q", node, c.bind, c.n, text, c.want)
		}
	}
	none := &topo.Node{CPUs: topo.CPUSet{0}, Cores: []topo.Core{{CPUs: topo.CPUSet{0}}}} // of a system that cannot bind
	if _, err := Place(none, BindCore, 1); err == nil {
		t.Error("binding where there is none is no error")
	}
	if places, err := Place(none, BindAuto, 1); err != nil || places != nil {
		t.Errorf("got %v, %v", places, err)
	}
}

// TestPlacesDoNotOverlap checks on many machines that ranks never overlap while there is a
// processor for each, that each has an even share or more, and that none is
// left over where ranks have whole cores.
func TestPlacesDoNotOverlap(t *testing.T) {
	for domains := 1; domains <= 4; domains++ {
		for cores := 1; cores <= 5; cores++ {
			node := machine(t, domains, cores, fmt.Sprintf("0-%d", 2*domains*cores-1))
			all := len(node.CPUs)
			for n := 1; n <= all+3; n++ {
				for _, b := range []Bind{BindCore, BindNUMA} {
					places, err := Place(node, b, n)
					if err != nil || len(places) != n {
						t.Fatalf("%v: %v, %v", node, places, err)
					}
					used := topo.CPUSet(nil)
					for r, p := range places {
						apart := b == BindCore && n <= all || b == BindNUMA && n <= domains
						if both := used.Intersect(p); len(p) == 0 || apart && both != nil {
							t.Fatalf("%v: bind %s, %d ranks: rank %d has %v, and %v others have too", node, b, n, r, p, both)
						}
						if b == BindCore && n <= all/2 && len(p) < 2*(all/2/n) {
							t.Fatalf("%v: %d ranks: rank %d has only %v", node, n, r, p)
						}
						if b == BindNUMA && n > domains && len(node.DomainsOf(p)) != 1 {
							t.Fatalf("%v: %d ranks: rank %d has %v", node, n, r, p)
						}
						used = used.Union(p)
					}
					if n <= all/2 && !slices.Equal(used, node.CPUs) {
						t.Fatalf("%v: bind %s, %d ranks: %v has no rank", node, b, n, node.CPUs.Minus(used))
					}
				}
			}
		}
	}
}
