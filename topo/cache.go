package topo

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// readCaches finds the caches of the usable processors.
func (n *Node) readCaches(t tree) {
	n.Caches = nil
	// Each cache is read from the first processor that has it. Processors number their caches
	// alike, except those of another kind of core.
	seen := make(map[[3]int]bool) // processor, level, type
	for _, cpu := range n.CPUs {
		folder := cpuFolder + "/cpu" + strconv.Itoa(cpu) + "/cache"
		for _, i := range t.numbered(folder, "index") {
			at := folder + "/index" + strconv.Itoa(i)
			level, ok := t.number(at + "/level")
			kind := t.text(at + "/type")
			if !ok || level < 1 || level > 9 || kind == "" {
				continue
			}
			key := func(cpu int) [3]int { return [3]int{cpu, int(level), int(kind[0])} }
			if seen[key(cpu)] {
				continue
			}
			size, _ := parseSize(t.text(at+"/size"), 0) // "48K", "32768K", "4M"
			c := Cache{Level: int(level), Type: kind, Size: size}
			for _, with := range firstList(t, cpu, at+"/shared_cpu_list").Intersect(n.CPUs) {
				if !seen[key(with)] {
					c.CPUs = append(c.CPUs, with)
					seen[key(with)] = true
				}
			}
			n.Caches = append(n.Caches, c)
		}
	}
	slices.SortStableFunc(n.Caches, func(a, b Cache) int {
		return cmp.Or(a.Level-b.Level, strings.Compare(a.Type, b.Type), a.CPUs[0]-b.CPUs[0])
	})
}
