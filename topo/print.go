package topo

import (
	"fmt"
	"math/bits"
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

// sizeText formats a size in binary units: "251 GiB", "1.5 MiB".
func sizeText(n int64) string {
	unit := (bits.Len64(uint64(n)) - 1) / 10
	if unit == 0 {
		return fmt.Sprint(n, " B")
	}
	return fmt.Sprintf("%.4g %ciB", float64(n)/float64(int64(1)<<(10*unit)), " KMGTPE"[unit])
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
