package topo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// String formats the node in one line: "n01: 16 of 64 processors (0-15), 8 cores in 1 package, 2
// NUMA domains, 251 GiB; control groups allow 4 processors, 32 GiB".
func (n *Node) String() string {
	var b strings.Builder
	if n.Host != "" {
		b.WriteString(n.Host + ": ")
	}
	b.WriteString(n.processors())
	if len(n.Packages) > 0 {
		b.WriteString(" in " + plural(len(n.Packages), "package"))
	}
	b.WriteString(", " + plural(len(n.Domains), "NUMA domain"))
	if n.Memory.Total > 0 {
		b.WriteString(", " + sizeText(n.Memory.Total))
	}
	if l := n.Limits.String(); l != "" {
		b.WriteString("; control groups allow " + l)
	}
	return b.String()
}

// processors formats the usable processors and cores.
func (n *Node) processors() string {
	s := plural(len(n.CPUs), "processor")
	if len(n.Online) > len(n.CPUs) {
		s = fmt.Sprintf("%d of %s", len(n.CPUs), plural(len(n.Online), "processor"))
	}
	return fmt.Sprintf("%s (%v), %s", s, n.CPUs, plural(len(n.Cores), "core"))
}

// String lists the limits: "2.5 processors, 32 GiB, 512 processes".
func (l Limits) String() string {
	var all []string
	if l.CPU > 0 {
		word := " processors"
		if l.CPU == 1 {
			word = " processor"
		}
		all = append(all, strconv.FormatFloat(l.CPU, 'g', 4, 64)+word)
	}
	if l.Memory > 0 {
		all = append(all, sizeText(l.Memory))
	}
	if l.Procs > 0 {
		all = append(all, plural(l.Procs, "process"))
	}
	return strings.Join(all, ", ")
}

// Tree formats the node in several lines, each ending in a newline: the domains with their caches
// and processors, and the properties of the whole machine.
func (n *Node) Tree() string {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		fmt.Fprintf(&b, "%*s%s\n", 2*depth, "", fmt.Sprintf(format, args...))
	}
	line(0, "%s", join(": ", n.Host, join(", ", n.Model, n.processors())))
	for _, d := range n.Domains {
		line(1, "%s", join(": ", "domain "+strconv.Itoa(d.ID), n.domain(d)))
		for _, g := range n.groups(d) {
			line(2, "%s", g)
		}
	}
	if len(n.Domains) > 1 && n.Domains[0].Distances != nil {
		for _, d := range n.Domains {
			line(1, "distances from %d: %s", d.ID, strings.Trim(fmt.Sprint(d.Distances), "[]"))
		}
	}
	if s := n.privateCaches(); s != "" {
		line(1, "caches of a core: %s", s)
	}
	if m := n.Memory; m.Total > 0 {
		s := sizeText(m.Total)
		if m.Available > 0 {
			s += ", " + sizeText(m.Available) + " available"
		}
		line(1, "memory: %s", s)
	}
	var pages []string
	for _, h := range n.HugePages {
		pages = append(pages, fmt.Sprintf("%d of %s", h.Total, sizeText(h.Size)))
	}
	if n.TransparentHugePages != "" {
		pages = append(pages, "transparent: "+n.TransparentHugePages)
	}
	if pages != nil {
		line(1, "huge pages: %s", strings.Join(pages, ", "))
	}
	if s := n.Limits.String(); s != "" {
		line(1, "control groups allow: %s", s)
	}
	return b.String()
}

// domain formats a domain without its processors.
func (n *Node) domain(d Domain) string {
	var packages []int
	for _, c := range n.Cores {
		if c.Domain == d.ID && c.Package >= 0 {
			packages = append(packages, c.Package)
		}
	}
	slices.Sort(packages)
	packages = slices.Compact(packages)
	var all []string
	if len(packages) == 1 {
		all = append(all, "package "+strconv.Itoa(packages[0]))
	} else if len(packages) > 1 {
		all = append(all, "packages "+ranges(packages))
	}
	switch {
	case d.Memory > 0 && d.Allowed:
		all = append(all, sizeText(d.Memory)+", "+sizeText(d.Free)+" free")
	case d.Memory > 0:
		all = append(all, sizeText(d.Memory)+" that may not be used")
	}
	if len(d.CPUs) == 0 {
		all = append(all, "no processors")
	}
	return join(", ", all...)
}

// groups formats a domain's cores, grouped by kind and shared cache.
func (n *Node) groups(d Domain) []string {
	type key struct{ cache, class int }
	var keys []key
	in := make(map[key][]Core)
	for _, c := range n.Cores {
		if c.Domain != d.ID {
			continue
		}
		k := key{n.lastCache(c.CPUs[0]), c.Class}
		if in[k] == nil {
			keys = append(keys, k)
		}
		in[k] = append(in[k], c)
	}
	var all []string
	for _, k := range keys {
		var cpus []int
		for _, c := range in[k] {
			cpus = append(cpus, c.CPUs...)
		}
		s := plural(len(in[k]), "core")
		if k.class > 0 {
			s += " of slower kind"
		}
		if len(cpus) > len(in[k]) {
			s += fmt.Sprintf(", %s", plural(len(cpus), "hardware thread"))
		}
		s += ": " + NewCPUSet(cpus...).String()
		if k.cache >= 0 {
			c := n.Caches[k.cache]
			s = strings.TrimSpace(fmt.Sprintf("L%d %s", c.Level, sizeText(c.Size))) + ": " + s
		}
		all = append(all, s)
	}
	return all
}

// lastCache returns the index of the last-level cache of a processor if several cores share it, or
// -1.
func (n *Node) lastCache(cpu int) int {
	at := -1
	for i, c := range n.Caches { // ascending by level
		if c.CPUs.Contains(cpu) && c.Type != "Instruction" && c.Level > 1 {
			at = i
		}
	}
	return at
}

// privateCaches formats the caches below the last level, each kind and size once.
func (n *Node) privateCaches() string {
	var all []string
	top := 0
	for _, c := range n.Caches {
		top = max(top, c.Level)
	}
	for _, c := range n.Caches {
		if c.Level == top && top > 1 {
			continue
		}
		kind := ""
		if c.Type == "Data" || c.Type == "Instruction" {
			kind = strings.ToLower(c.Type[:1])
		}
		s := fmt.Sprintf("L%d%s %s", c.Level, kind, sizeText(c.Size))
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return strings.Join(all, ", ")
}

// sizeText formats a size in binary units: "251 GiB", "1.5 MiB".
func sizeText(n int64) string {
	if n <= 0 {
		return "0"
	}
	unit, size := 0, float64(n)
	for size >= 1024 && unit < 5 {
		size /= 1024
		unit++
	}
	if unit == 0 {
		return strconv.FormatInt(n, 10) + " B"
	}
	digits := 0
	if size < 10 && size != float64(int64(size)) {
		digits = 1
	}
	return strconv.FormatFloat(size, 'f', digits, 64) + " " + "KMGTP"[unit-1:unit] + "iB"
}

// plural formats a count with its noun.
func plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "s"):
		word += "es"
	default:
		word += "s"
	}
	return strconv.Itoa(n) + " " + word
}

// join joins the parts that are not empty.
func join(sep string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), sep)
}
